# frozen_string_literal: true

require_relative "api"
require_relative "asides"
require_relative "ask"
require_relative "asked"
require_relative "batch"
require_relative "budget"
require_relative "counts"

module Lbd
  # What a client knows of one cluster, or target, and the thread that keeps its batch up to date. Safe for threads.
  class Cluster
    # Picks of a batch: at first, and those of BATCH_TIME seconds within the bounds.
    BATCH_FIRST = 100
    BATCH_MIN = 20
    BATCH_MAX = 1000
    BATCH_TIME = 2.0

    # Addresses that a request has tried, or that lbd excludes, at most.
    TRIED_MAX = 100

    # Seconds after which a batch of nothing but refusals is fetched again, and that of a name that lbd rejects.
    REFUSED_AGE = 1.0

    # Seconds that lbd may wait for an endpoint, before it answers that there is none.
    FETCH_WAIT = 1.0

    # Seconds between two calls that follow a cluster, and between two batches because it changed, at least.
    FOLLOW_PAUSE = 0.1

    FOLLOW_WAIT = 30.0

    # Seconds between tries after failed calls.
    BACKOFF_FIRST = 0.1
    BACKOFF_MAX = 5.0
    RETRY_AFTER_MAX = 60.0

    # Seconds without a request after which a cluster is no longer followed.
    IDLE_TIME = 300.0

    attr_reader :name, :counts, :budget, :asides, :connects, :batch

    # When lbd gave it an endpoint last, in the modes without a batch; 0 for never.
    attr_accessor :picked

    def initialize(name, api, max_age:, stale_for:, max_tokens:, hooks: nil)
      @name = name
      @target = name.delete_prefix(Host::TARGET) if name.start_with?(Host::TARGET)
      @api = api
      @max_age = max_age
      @stale_for = stale_for
      @hooks = hooks
      @budget = Budget.new(max_tokens)
      @asides = Asides.new
      @connects = Connects.new
      @batch = nil
      @asked = Asked.new
      @closed = @forgotten = false
      @picked = 0
      after_fork
    end

    # The cluster, or the target, as a parameter.
    def parameters
      @target ? { target: @target } : { cluster: @name }
    end

    # The cluster of picks; nil if their target chooses it.
    def chosen
      @name unless @target
    end

    # Keeps the batch, and forgets what the parent counted; the thread stayed there.
    def after_fork
      @counts = Counts.new
      @lock = Mutex.new
      @changed = ConditionVariable.new
      @thread = nil
      @error = nil
      @tried = false
      @refused = 0.0 # until when @error is the answer to requests, without a thread
      @used = true
      @size = BATCH_FIRST
      @size_max = BATCH_MAX
    end

    # The next element of the batch for a query, or, if any will do without lbd, of the last one: a choice, or the error
    # of a request that is refused. Raises an Error if there is no batch in time.
    def take(deadline, query = "", any: true)
      @used = true
      batch = @batch
      batch = wait(deadline, query, any) unless usable?(batch) && batch.query == query && @thread&.alive?
      batch.take { |address| @asides.avoid?(address) }
    end

    # The batch after one; nil if there is none until a time.
    def next(batch, deadline)
      @lock.synchronize do
        @changed.wait(@lock, deadline.left) until !@batch.equal?(batch) || @closed || deadline.passed?
        @batch unless @batch.equal?(batch)
      end
    end

    # May set an address aside: a try was not sent, or got no answer.
    def failed(address, sent)
      batch = @batch
      @asides.failed(address, sent, batch&.query == "" ? batch.addresses.size / 2 : TRIED_MAX)
    end

    # Ends the thread after its next try, if there is no batch, and says whether that is so.
    def forget
      @lock.synchronize do
        @changed.broadcast
        @forgotten = @batch.nil?
      end
    end

    # Ends the thread.
    def close
      @lock.synchronize do
        @closed = true
        @changed.broadcast
        @thread&.kill
      end
    end

    private

    # Whether requests use the batch: it is not older than stale_for, or lbd has answered the last call.
    def usable?(batch)
      !batch.nil? && (Clock.now - batch.made < @stale_for || (@tried && @error.nil?))
    end

    # Starts the thread if there is none, and waits for a batch, or for the first try to get one. Returns that for a
    # query.
    def wait(deadline, query, any)
      @asked[query] # if it is the first one, the thread gets its batch
      batch, usable, error = @lock.synchronize do
        start unless @thread&.alive? || @closed || Clock.now < @refused
        @changed.wait(@lock, deadline.left) until usable?(@batch) || @tried || @closed || deadline.passed?
        [@batch, usable?(@batch), @error]
      end
      return batch.query == query ? batch : ask(query, (batch if any), deadline) if usable
      # Those of other requests.
      return ask(query, nil, deadline) if error&.code == "no_route"
      return ask(query, nil, deadline) if error&.code == "invalid_argument" && @target

      @hooks&.stale(error) if batch && error&.code == ""
      raise Errors.like(error) if error

      raise no_answer
    end

    def no_answer
      Errors.unavailable(@name, @closed ? "the client is closed" : "lbd did not answer in time")
    end

    # The batch for a query. Without an answer of lbd it may be old, or last, that of other requests, unless it is nil.
    def ask(query, last, deadline)
      known, now = @asked[query], Clock.now
      old = known if known && now - known.made < @stale_for
      return known if known && (now < known.due || (@error && old))

      result = @asked.fetch(query, deadline) { answer(query) } or raise no_answer
      return result if result.is_a?(Batch)

      # Better another endpoint than none, unless the cluster is not known.
      other = old || (last if last&.generation && !@target) if result.code.empty?
      other || raise(Errors.like(result))
    end

    # The batch for a query, or the error of the call.
    def answer(query)
      fetch(query, BATCH_MIN)
    rescue StandardError => error
      error.is_a?(Error) ? error : @error = Errors.unreachable(@name, error)
    end

    def start
      @thread = Thread.new { run }
      @tried, @error = false, nil
    end

    def run
      Thread.current.name = "lbd #{@name}"
      backoff = BACKOFF_FIRST
      used = Clock.now
      loop do
        begin
          refresh
          backoff = BACKOFF_FIRST
        rescue StandardError => error # the thread has to survive whatever comes
          pause = [backoff * rand(0.8..1.2), note(error)].max
          break @refused = Clock.now + REFUSED_AGE if rejected? # names are often input

          @lock.synchronize { @changed.wait(@lock, pause) unless @forgotten }
          backoff = [2 * backoff, BACKOFF_MAX].min
        end
        used = Clock.now if @used
        @used = false
        break if @forgotten || Clock.now - used >= IDLE_TIME
      end
      @lock.synchronize do
        @thread = @batch = nil
        @asked = Asked.new
      end
    end

    # Whether lbd rejects the name of the cluster, or the token, before there is a batch: the same call would not help
    # soon.
    def rejected?
      return false if @batch

      @error.is_a?(UnknownCluster) || @error.is_a?(PermissionDenied) || @error.code == "invalid_argument"
    end

    # Gets a batch, and returns when it is time for the next one.
    def refresh
      query = @asked.last.to_s
      batch = fetch(query, query.empty? ? @size : BATCH_MIN)
      @asked.put(batch, true)
      publish(batch, nil)
      batch.generation ? follow(batch) : sleep([batch.due - Clock.now, 0].max)
      age = Clock.now - batch.made
      return if age < FOLLOW_PAUSE

      @size = (batch.taken * BATCH_TIME / age).to_i.clamp(BATCH_MIN, @size_max)
      @budget.fit(@size, BATCH_FIRST)
    end

    # Publishes why there is no new batch, and returns the seconds that lbd asks to wait.
    def note(error)
      error = Errors.unreachable(@name, error) unless error.is_a?(Error)
      publish(@batch, error)
      [error.retry_after, RETRY_AFTER_MAX].min
    end

    def publish(batch, error)
      @asides.keep(batch.addresses) if batch&.generation && batch.query.empty?
      @lock.synchronize do
        @batch = batch
        @error = error
        @tried = true
        @changed.broadcast
      end
    end

    # The batch of size picks for a query.
    def fetch(query, size)
      batch = begin
        Batch.of_answer(@name, picks(query, size), chosen)
      rescue Dropped, CircuitBroken => error
        Batch.of_refusal(error)
      end
      batch.query = query
      batch.due = batch.made + (batch.generation ? age : [REFUSED_AGE, @max_age].min)
      batch
    rescue Unavailable => error
      raise unless size > BATCH_FIRST && error.code == "invalid_argument"

      size = @size = @size_max = BATCH_FIRST # the quota of the caller does not permit more
      retry
    rescue ArgumentError => error
      raise Unreachable, "the answer is not a batch: #{error.message}"
    end

    def picks(query, size)
      @api.call("GET", "/v1/pick", parameters: parameters.merge(n: size, reports: true, wait: Api.duration(FETCH_WAIT)),
                                   asks: query, cluster: @name, deadline: Deadline.new(FETCH_WAIT + 1.0))
    end

    # The age of a batch when it is replaced. It is drawn, because a change makes all clients get one at the same time.
    def age
      [@max_age * rand(0.8..1.0), FOLLOW_PAUSE].max
    end

    def follow(batch)
      state = { endpoints: false, index: batch.generation }
      state[:target] = @target if @target
      while (left = batch.due - Clock.now).positive?
        began = Clock.now
        wait = [left, FOLLOW_WAIT].min
        answer = @api.call("GET", "/v1/clusters/#{Api.escape(batch.cluster || @name)}",
                           parameters: state.merge(wait: Api.duration(wait)),
                           cluster: @name, deadline: Deadline.new(wait + 1.0))
        changed = answer["generation"] != batch.generation
        sleep([(changed ? batch.made : began) + FOLLOW_PAUSE - Clock.now, 0.0].max)
        return if changed
      end
    end
  end
end
