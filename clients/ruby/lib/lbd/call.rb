# frozen_string_literal: true

require_relative "attempt"

module Lbd
  # One request to a cluster, with all of its tries.
  class Call
    # Seconds that lbd may queue a pick, at most.
    WAIT_MAX = 5.0

    # Seconds that a lease lasts longer than its request may.
    LEASE_GRACE = 5.0

    # The default of --max-ttl.
    LEASE_MAX = 600.0

    attr_reader :client, :cluster

    # repeatable permits retries.
    def initialize(client, cluster, deadline, repeatable)
      @client = client
      @cluster = cluster
      @deadline = deadline
      @repeatable = repeatable
      @epoch = client.epoch
      @tried = []
    end

    # Yields the tries one after the other, and returns what the block returned for the last one. The block sends the
    # request, and calls answered. kind is the one of Failures for an error of the block.
    def run(kind = Failures.method(:kind), &block)
      attempt = in_time(first) or raise Net::OpenTimeout, "no time was left to send the request"
      loop do
        result = try(attempt, kind, &block)
        attempt = attempt.following or return result
      end
    end

    # The next try after one that failed; nil if the result of that one is the result of the request.
    def retry
      permitted = @cluster.budget.failed
      return unless permitted && @repeatable && @tried.size <= @client.retries
      return if over?

      unless @client.mode == :batch
        # lbd may need the place of the lease in the circuit breaker.
        ended = @lease.nil? || @client.sender.end_failed(@lease, @deadline)
        return ended && !over? ? in_time(pick) : nil
      end

      address = @cluster.take_other(@tried)
      at(address) if address
    rescue Error
      nil
    end

    private

    def try(attempt, kind)
      attempt.start
      yield attempt
    rescue StandardError => error
      raise unless attempt.failed(kind.call(error))
    ensure
      attempt.finish
    end

    # Whether there is to be no other try. A child of fork does not go on with a request of its parent.
    def over?
      @deadline.passed? || @client.closed? || @epoch != @client.epoch
    end

    # The attempt, unless the deadline passed while lbd answered.
    def in_time(attempt)
      return attempt unless @deadline.passed?

      attempt.abandon
      nil
    end

    def first
      return pick unless @client.mode == :batch

      element = @cluster.take(@deadline)
      raise Errors.like(element) unless element.is_a?(String)

      @client.sender.start
      at(element)
    rescue Unavailable => error
      # With a code, lbd has answered.
      raise unless @client.fallback && error.code.empty?

      @repeatable = false
      Attempt.new(self, @client.fallback)
    end

    def at(address, lease = nil)
      @tried << address
      @lease = lease # of the last try
      Attempt.new(self, address, lease: lease, counted: @client.mode == :batch)
    end

    def pick
      wait = @deadline.at_most(WAIT_MAX)
      parameters = { cluster: @cluster.name, wait: Api.duration(wait), exclude: @tried.empty? ? nil : @tried }
      return leased(parameters, wait) if @client.mode == :lease

      at(call("GET", parameters, wait) { |answer| Batch.address(answer) })
    end

    def leased(parameters, wait)
      left = @deadline.left
      ttl = [left ? left + LEASE_GRACE : @client.ttl, LEASE_MAX].min
      parameters.update(ttl: Api.duration(ttl), owner: @client.owner)
      lease = nil
      address = call("POST", parameters, wait) do |answer|
        lease = Lease.new(answer.fetch("lease").fetch("id"), ttl, @deadline)
        Batch.address(answer)
      end
      @client.sender.start
      at(address, lease)
    end

    def call(method, parameters, wait)
      yield @client.api.call(method, "/v1/pick", parameters: parameters, cluster: @cluster.name,
                                                 deadline: Deadline.new(wait + 1.0))
    rescue Unreachable, ArgumentError, KeyError, NoMethodError => error
      raise Errors.unavailable(@cluster.name, "lbd is unreachable: #{error.message}")
    end
  end
end
