# frozen_string_literal: true

require_relative "api"
require_relative "lease"
require_relative "processes"

module Lbd
  # The thread that sends reports, and ends and renews leases. Safe for threads.
  class Sender
    # Endpoints in one report, and leases that one call ends, at most.
    REPORT_ENDPOINTS = 1000
    LEASES_AT_ONCE = 1000

    # Ends of leases that wait for lbd, at most. The others expire.
    LEASES_WAITING = 100_000

    # Seconds between tries to end leases while lbd is unreachable.
    PAUSE = 0.5

    # clusters returns the clusters of the client, and reporter its name in reports.
    def initialize(api, interval, clusters, reporter)
      @api = api
      @interval = interval
      @clusters = clusters
      @reporter = reporter
      @closed = false
      after_fork
    end

    # Forgets the leases of the parent; the thread stayed there.
    def after_fork
      @lock = Mutex.new
      @wake = ConditionVariable.new
      @thread = nil
      @stopping = false
      @leases = {}
      @ended = []
      @retry_at = 0.0
    end

    def start
      return if @thread&.alive?

      @lock.synchronize do
        next if @thread&.alive? || @closed

        Processes.flush_at_exit
        @stopping = false
        @thread = Thread.new { run }
      end
    end

    # Renews a lease until it is ended. The block is called under the lock: what it notes holds exactly if this does.
    def hold(lease)
      @lock.synchronize do
        @leases[lease.id] = lease
        @wake.signal
        yield
      end
    end

    # Ends a lease in the background.
    def end(lease, outcome)
      @lock.synchronize do
        next unless @leases.delete(lease.id) && @ended.size < LEASES_WAITING

        @ended << { id: lease.id, outcome: outcome }
        @wake.signal
      end
    end

    # Sends what is left, and ends all leases. Waits for timeout seconds at most.
    def flush(timeout)
      deadline = Deadline.new(timeout)
      stop(timeout / 2)
      @lock.synchronize do
        @ended.concat(@leases.keys.map { |id| { id: id, outcome: :cancelled } })
        @leases.clear
        @retry_at = 0.0
      end
      send_ended(deadline) until @ended.empty? || deadline.passed? || Clock.now < @retry_at
      report(deadline) unless deadline.passed?
    end

    def close(timeout)
      @closed = true
      flush(timeout)
    end

    private

    def stop(timeout)
      thread = @lock.synchronize do
        @stopping = true
        @wake.signal
        @thread
      end
      thread.kill unless thread.nil? || thread.join(timeout)
    end

    def run
      Thread.current.name = "lbd reports"
      next_report = Clock.now + @interval
      until @stopping
        begin
          if Clock.now >= next_report
            next_report = Clock.now + @interval
            report
          end
          renew
          send_ended
          rest(next_report)
        rescue StandardError # the thread has to survive whatever comes
          sleep(PAUSE)
        end
      end
    end

    # Waits until there is something to do.
    def rest(next_report)
      @lock.synchronize do
        now = Clock.now
        wait = [next_report, *@leases.each_value.map(&:renew_at)].min - now
        wait = [wait, @retry_at - now].min unless @ended.empty?
        @wake.wait(@lock, wait) if wait.positive? && !@stopping
      end
    end

    # Ends leases; if lbd is unreachable, again later. Leases whose end is never sent expire.
    def send_ended(deadline = nil)
      return if Clock.now < @retry_at

      ended = @lock.synchronize { @ended.shift(LEASES_AT_ONCE) }
      return if ended.empty?

      begin
        call("POST", "/v1/leases/done", deadline, body: { leases: ended })
      rescue Error
        nil # they have expired, or lbd was restarted
      rescue Unreachable
        @lock.synchronize { @ended.unshift(*ended) }
        @retry_at = Clock.now + PAUSE
      end
    end

    def renew
      now = Clock.now
      due = @lock.synchronize { @leases.values.select { |lease| now >= lease.renew_at } }
      due.each do |lease|
        # A body that its caller gave up within a Fiber is never closed.
        next self.end(lease, :cancelled) if lease.deadline.passed?

        lease.renew_at = now + (lease.ttl / 2)
        @api.call("POST", "/v1/leases/#{lease.id}/renew", parameters: { ttl: Api.duration(lease.ttl) })
      rescue Error => error
        next unless error.code == "unknown_lease"

        @lock.synchronize { @leases.delete(lease.id) } # it has expired: the request goes on without it
      rescue Unreachable
        lease.renew_at = now + [1.0, lease.ttl / 4].min
      end
    end

    def report(deadline = nil)
      @clusters.call.each do |cluster|
        since, entries = cluster.counts.take
        interval = (Clock.now - since).clamp(0.1, 300.0)
        until entries.empty?
          part = entries.shift(REPORT_ENDPOINTS)
          send_part(cluster, since, interval, part, deadline)
        end
      end
    end

    # If the thread is killed meanwhile, lbd may have got the part: it is not sent again.
    def send_part(cluster, since, interval, part, deadline)
      call("POST", "/v1/reports", deadline,
           body: { reporter: @reporter.call, interval: Api.duration(interval),
                   clusters: [{ cluster: cluster.name, endpoints: part }] })
    rescue Error, Unreachable
      cluster.counts.give_back(since, part)
    end

    def call(method, path, deadline, body:)
      @api.call(method, path, body: body, deadline: deadline || Deadline.new(Api::CALL_TIMEOUT))
    end
  end
end
