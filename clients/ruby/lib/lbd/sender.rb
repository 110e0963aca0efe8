# frozen_string_literal: true

require_relative "api"
require_relative "lease"
require_relative "processes"

module Lbd
  # The threads that send reports, and end and renew leases: a slow call does not delay the others. Safe for threads.
  class Sender
    # Endpoints in one report, and leases that one call ends, at most.
    REPORT_ENDPOINTS = 1000
    LEASES_AT_ONCE = 1000

    # Ends of leases that wait for lbd, at most. The others expire.
    LEASES_WAITING = 100_000

    # A cluster with so many errors is reported after so many seconds already.
    EARLY_ERRORS = 5
    EARLY_INTERVAL = 1.0

    # Seconds for which connects that failed are collected.
    TELL_PAUSE = 0.05

    # Seconds between tries to end leases while lbd is unreachable.
    PAUSE = 0.5

    # Seconds that a thread that was killed has to end.
    KILL_TIME = 0.1

    # threads is the number of calls at the same time. clusters returns the clusters of the client, and reporter its
    # name in reports.
    def initialize(api, threads, interval, clusters, reporter)
      @api = api
      @size = threads
      @interval = interval
      @clusters = clusters
      @reporter = reporter
      @closed = false
      after_fork
    end

    # Forgets the leases of the parent; the threads stayed there.
    def after_fork
      @lock = Mutex.new
      @wake = ConditionVariable.new
      @threads = []
      @stopping = @reporting = false
      @pause = [@interval, EARLY_INTERVAL].min
      @next_report = Clock.now + @pause # of the clusters with some errors
      @next_full = Clock.now + @interval
      @leases = {}
      @ended = []
      @retry_at = 0.0
      @failures = Hash.new(0) # connects, by cluster and address
      @tell_at = 0.0
      @telling = false
    end

    def start
      return if running?

      @lock.synchronize do
        next if running? || @closed

        Processes.flush_at_exit
        @stopping = false
        @threads.select!(&:alive?)
        @threads << Thread.new { run } while @threads.size < @size
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

    # Ends the lease of a try that failed, and waits for it. end does so again: lbd answers both alike. Returns whether
    # lbd has confirmed it: if not, it would not grant another lease, either.
    def end_failed(lease, outcome, deadline)
      @api.call("POST", "/v1/leases/done", deadline: Deadline.new(deadline.at_most(Api::CALL_TIMEOUT)), hooks: nil,
                                           body: { leases: [{ id: lease.id, outcome: outcome }] })
      true
    rescue Error, Unreachable
      false
    end

    # Reports a connect that failed, together with others of the next 50 ms. What cannot be sent is forgotten.
    def unreachable(cluster, address)
      start
      @lock.synchronize do
        key = [cluster, address]
        next if @closed || (@failures.size >= REPORT_ENDPOINTS && !@failures.key?(key))

        @tell_at = Clock.now + TELL_PAUSE if @failures.empty?
        @failures[key] += 1
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
      tell(deadline) unless deadline.passed?
    end

    def close(timeout)
      @closed = true
      flush(timeout)
    end

    private

    def running?
      @threads.size == @size && @threads.all?(&:alive?)
    end

    def stop(timeout)
      deadline = Deadline.new(timeout)
      threads = @lock.synchronize do
        @stopping = true
        @wake.broadcast
        @threads
      end
      threads.reject { |thread| thread.join(deadline.left) }.each(&:kill).each { |thread| thread.join(KILL_TIME) }
    end

    def run
      Thread.current.name = "lbd reports"
      until @stopping
        begin
          task = @lock.synchronize { due(Clock.now) || rest }
          task&.call
        rescue StandardError # the thread has to survive whatever comes
          sleep(PAUSE)
        end
      end
    end

    # What is to be done, if no other thread does it; nil if there is nothing. Called under the lock.
    def due(now)
      return if @stopping

      if now >= @tell_at && !@failures.empty? && !@telling
        @telling = true
        return method(:tell)
      end
      return method(:send_ended) unless @ended.empty? || now < @retry_at

      if now >= @next_report && !@reporting
        early = now < @next_full - (@pause / 2)
        @next_report = now + @pause
        @next_full = now + @interval unless early
        @reporting = true
        return -> { report_in_background(early) }
      end
      lease = @leases.each_value.find { |each| now >= each.renew_at }
      return unless lease

      lease.renew_at = now + (lease.ttl / 2)
      -> { renew(lease) }
    end

    # Waits until there may be something to do. Called under the lock.
    def rest
      now = Clock.now
      wait = [@reporting ? now + @interval : @next_report, *@leases.each_value.map(&:renew_at)].min - now
      wait = [wait, @retry_at - now].min unless @ended.empty?
      wait = [wait, @tell_at - now].min unless @failures.empty? || @telling
      @wake.wait(@lock, wait) if wait.positive? && !@stopping
      nil
    end

    # Ends leases; if lbd is unreachable, again later. Leases whose end is never sent expire.
    def send_ended(deadline = nil)
      ended = @lock.synchronize { @ended.shift(LEASES_AT_ONCE) }
      return if ended.empty?

      sent = false
      begin
        call("POST", "/v1/leases/done", deadline, body: { leases: ended })
        sent = true
      rescue Error
        sent = true # they have expired, or lbd was restarted
      rescue Unreachable
        @retry_at = Clock.now + PAUSE
      ensure # also if the thread is killed: lbd answers a second end like the first
        @lock.synchronize { @ended.unshift(*ended) } unless sent
      end
    end

    def renew(lease)
      # A body that its caller gave up within a Fiber is never closed.
      return self.end(lease, :cancelled) if lease.deadline.passed?

      @api.call("POST", "/v1/leases/#{lease.id}/renew", parameters: { ttl: Api.duration(lease.ttl) })
    rescue Error => error
      return renew_again(lease) unless error.code == "unknown_lease"

      @lock.synchronize { @leases.delete(lease.id) } # it has expired: the request goes on without it
    rescue Unreachable
      renew_again(lease)
    end

    def renew_again(lease)
      @lock.synchronize do
        lease.renew_at = Clock.now + [1.0, lease.ttl / 4].min
        @wake.signal
      end
    end

    def tell(deadline = nil)
      failures = @lock.synchronize do
        @failures.tap { @failures = Hash.new(0) }
      end
      return if failures.empty?

      clusters = failures.group_by { |(cluster, _), _| cluster }.map do |name, all|
        { cluster: name, endpoints: all.map { |(_, address), count| { address: address, connect_failures: count } } }
      end
      call("POST", "/v1/reports", deadline, body: { reporter: @reporter.call, clusters: clusters })
    rescue Error, Unreachable
      nil # what lbd does not hear now would come too late
    ensure
      @telling = false
    end

    def report_in_background(early)
      report(early: early)
    ensure
      @reporting = false
    end

    def report(deadline = nil, early: false)
      @clusters.call.each do |cluster|
        next if early && cluster.counts.errors < EARLY_ERRORS

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
