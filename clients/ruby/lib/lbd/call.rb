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

    # Connects that have less time, at most.
    HURRIED = 3

    # Seconds that a request waits for other endpoints after none that are known has answered, and between two picks of
    # that time.
    OTHER_TIME = 1.0
    OTHER_PAUSE = 0.2

    attr_reader :client, :cluster, :deadline, :request, :url

    # repeatable permits retries. query is what the request asks, and ask gets the choices. request and url are for
    # hooks.
    def initialize(client, cluster, deadline, repeatable, query, ask, request, url)
      @client = client
      @cluster = cluster
      @deadline = deadline
      @repeatable = repeatable
      @query = query
      @ask = ask
      @request = request
      @url = url
      @ask.choice = nil if ask
      @plain = client.mode == :batch && query.empty?
      @epoch = client.epoch
      @tried = []
      @moves = 0 # tries that were not sent
      @cut = false # one was not for want of time, and its address was not tried again
      @last = false # there is no other endpoint
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

    # Remembers that a try was not sent, or got no answer. cut says that it had too little time to connect.
    def failed(choice, unsent, cut)
      @cut ||= cut
      return if @fallback || @epoch != @client.epoch

      @cluster.failed(choice.address, !unsent)
      @client.sender.unreachable(choice.cluster, choice.address) if unsent && @lease.nil?
    end

    # The next try after one that failed with an outcome; nil if the result of that one is the result of the request.
    # One that was not sent may be any request, and is no retry for the limits. The request waits up to time seconds for
    # other endpoints.
    def retry(outcome, time = OTHER_TIME)
      if outcome == :unreachable
        @moves += 1
      else
        permitted = @cluster.budget.failed
        return unless permitted && @repeatable && @tried.size - @moves <= @client.retries
      end
      return if @fallback || @tried.size >= Cluster::TRIED_MAX || over?

      others = @deadline.within(time)
      # The batch may be that of another request, which has asked something.
      @plain && @cluster.batch&.query == "" ? other(others) : pick_other(outcome, others)
    rescue Error
      nil
    end

    private

    def try(attempt, kind)
      @ask.choice = attempt.choice if @ask
      attempt.start
      yield attempt
    rescue StandardError => error
      raise unless attempt.failed(kind.call(error), error)
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

    # A try at an address of the batch, or of the next one until the time others: lbd hears of connects that failed, and
    # may choose another priority.
    def other(others)
      batch = @cluster.batch
      until (choice = draw(batch))
        batch = @cluster.next(batch, others) or return
        return if over?
      end
      at(choice)
    end

    # A choice of a batch that was not tried; the last resort is one that had too little time.
    def draw(batch)
      choice = batch&.draw { |each| !@tried.include?(each) && !@cluster.asides.avoid?(each) } ||
               batch&.draw { |each| !@tried.include?(each) }
      return choice if choice || !@cut

      @cut, @last = false, true
      batch&.draw { |each| @tried.include?(each) }
    end

    # As other, with picks of lbd.
    def pick_other(outcome, others)
      # lbd may need the place of the lease in the circuit breaker.
      return unless @lease.nil? || @client.sender.end_failed(@lease, outcome, @deadline)

      begin
        in_time(pick_untried) unless over?
      rescue Unavailable => error
        raise if error.code != "all_excluded" || others.passed?

        sleep(others.at_most(OTHER_PAUSE))
        retry
      end
    end

    # A pick of an address that was not tried, and, if there is one, that is not set aside; the last resort is one that
    # had too little time.
    def pick_untried
      pick_of(*[@tried | @cluster.asides.avoided.sort, @tried, *([[]] if @cut)].uniq)
    end

    # A pick without the addresses of the first of some lists that leaves one.
    def pick_of(exclude, *others)
      @cut, @last = false, true if exclude.empty? && @tried.any?
      exclude = exclude.first(Cluster::TRIED_MAX)
      @client.mode == :batch ? take(exclude) : pick(exclude)
    rescue Unavailable => error
      raise if others.empty? || error.code != "all_excluded"

      pick_of(*others)
    end

    def first
      @plain ? take : pick_untried
    rescue Unavailable => error
      # With a code, lbd has answered.
      raise unless @client.fallback && error.code.empty?

      @fallback = true
      Attempt.new(self, Choice.new(nil, @client.fallback), 1)
    end

    def at(choice, lease = nil)
      @tried << choice.address
      @lease = lease # of the last try
      if @client.mode == :batch
        counts = (@cluster.chosen ? @cluster : @client.cluster(choice.cluster)).counts
      else
        @cluster.picked = Clock.now
        @cluster.asides.avoid?(choice.address) # this may be the trial
      end
      Attempt.new(self, choice, @tried.size, lease: lease, counts: counts, hurries: @moves < HURRIED && !@last)
    end

    # The next element of the batch for what the request asks.
    def take(exclude = nil)
      query = exclude.nil? || exclude.empty? ? @query : "#{@query}&#{URI.encode_www_form(exclude: exclude)}"
      element = @cluster.take(@deadline, query, any: @tried.empty?)
      raise Errors.like(element) unless element.is_a?(Choice)

      @client.sender.start
      at(element)
    end

    def pick(exclude)
      wait = @deadline.at_most(WAIT_MAX)
      parameters = @cluster.parameters.merge(wait: Api.duration(wait))
      parameters[:exclude] = exclude unless exclude.empty?
      return leased(parameters, wait) if @client.mode == :lease

      at(call("GET", parameters, wait) { |answer| Choice.of(answer, @cluster.chosen) })
    end

    def leased(parameters, wait)
      left = @deadline.left
      ttl = [left ? left + LEASE_GRACE : @client.ttl, LEASE_MAX].min
      parameters.update(ttl: Api.duration(ttl), owner: @client.owner)
      lease = nil
      choice = call("POST", parameters, wait) do |answer|
        lease = Lease.new(answer.fetch("lease").fetch("id"), ttl, @deadline)
        Choice.of(answer, @cluster.chosen)
      end
      @client.sender.start
      at(choice, lease)
    end

    def call(method, parameters, wait)
      yield @client.api.call(method, "/v1/pick", parameters: parameters, asks: @query, cluster: @cluster.name,
                                                 deadline: Deadline.new(wait + 1.0))
    rescue Unreachable, ArgumentError, KeyError, NoMethodError, TypeError => error
      raise Errors.unreachable(@cluster.name, error)
    end
  end
end
