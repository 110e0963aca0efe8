# frozen_string_literal: true

require_relative "deadline"

module Lbd
  # How the requests to the endpoints of one cluster ended, since the last report. Safe for threads.
  class Counts
    # Seconds after which counts that could not be sent are forgotten.
    MAX_AGE = 60.0

    # What happened at one endpoint.
    class Endpoint
      attr_accessor :requests, :errors, :cancelled, :latency, :in_flight, :in_flight_seconds

      def initialize(now)
        @requests = @errors = @cancelled = @in_flight = 0
        @latency = @in_flight_seconds = 0.0
        @since = now
      end

      def advance(now)
        @in_flight_seconds += @in_flight * (now - @since)
        @since = now
      end

      def entry(address)
        { address: address, requests: @requests, errors: @errors, cancelled: @cancelled,
          in_flight_seconds: @in_flight_seconds.round(6), latency_seconds: @latency.round(6) }
      end
    end
    private_constant :Endpoint

    def initialize
      @lock = Mutex.new
      @endpoints = {}
      @begin = Clock.now
    end

    # Counts a request as in flight. The block is called under the lock: what it notes holds exactly if this does.
    def start(address)
      @lock.synchronize do
        now = Clock.now
        endpoint = endpoint(address, now)
        endpoint.advance(now)
        endpoint.in_flight += 1
        yield now
      end
    end

    # Counts the outcome of a request that began at the time since.
    def answered(address, outcome, since)
      @lock.synchronize do
        now = Clock.now
        endpoint = endpoint(address, now)
        endpoint.requests += 1
        endpoint.latency += now - since
        endpoint.errors += 1 if outcome == :error
        endpoint.cancelled += 1 if outcome == :cancelled
      end
    end

    # Counts a request as no longer in flight.
    def finish(address)
      @lock.synchronize do
        now = Clock.now
        endpoint = endpoint(address, now)
        endpoint.advance(now)
        endpoint.in_flight -= 1
      end
    end

    # How many requests ended with an error since the last report.
    def errors
      @lock.synchronize { @endpoints.each_value.sum(&:errors) }
    end

    # The time when this was called last, and the entries of a report about the time since then.
    def take
      @lock.synchronize do
        now = Clock.now
        since, @begin = @begin, now
        taken, @endpoints = @endpoints, {}
        entries = taken.filter_map do |address, endpoint|
          endpoint.advance(now)
          endpoint(address, now).in_flight = endpoint.in_flight if endpoint.in_flight.positive?
          endpoint.entry(address) if endpoint.requests.positive? || endpoint.in_flight_seconds.positive?
        end
        [since, entries]
      end
    end

    # Adds entries that could not be sent to the next report, unless they are too old.
    def give_back(since, entries)
      @lock.synchronize do
        now = Clock.now
        next if now - since > MAX_AGE

        @begin = [@begin, since].min
        entries.each { |entry| add(endpoint(entry[:address], now), entry) }
      end
    end

    private

    def endpoint(address, now)
      @endpoints[address] ||= Endpoint.new(now)
    end

    def add(endpoint, entry)
      endpoint.requests += entry[:requests]
      endpoint.errors += entry[:errors]
      endpoint.cancelled += entry[:cancelled]
      endpoint.in_flight_seconds += entry[:in_flight_seconds]
      endpoint.latency += entry[:latency_seconds]
    end
  end
end
