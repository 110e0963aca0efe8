# frozen_string_literal: true

require_relative "failures"

module Lbd
  # One try of a request, at one address.
  class Attempt
    RETRIED_STATUSES = [502, 503, 504].freeze

    attr_reader :address

    # The next try, if this one is to be repeated.
    attr_reader :following

    # A try that is not counted goes to an address that is not of lbd.
    def initialize(call, address, lease: nil, counted: false)
      @call = call
      @address = address
      @lease = lease
      @counted = counted
      @epoch = call.client.epoch
      @started = false
      @outcome = nil
      @following = nil
    end

    # The request is in flight from now until finish.
    def start
      @call.client.sender.hold(@lease) { @started = true } if @lease
      return unless @counted

      @call.cluster.counts.start(@address) do |now|
        @began = now
        @started = true
      end
    end

    # The request is not sent: no endpoint is to blame.
    def abandon
      return unless @lease

      @call.client.sender.hold(@lease) { nil }
      @call.client.sender.end(@lease, :cancelled)
    end

    # The status and the headers of the response are there. Returns the next try if this answer is to be discarded.
    def answered(status)
      ended(status >= 500 ? :error : :success)
      if RETRIED_STATUSES.include?(status)
        @following = @call.retry
      else
        @call.cluster.budget.succeeded
        nil
      end
    end

    # The request ended with an error of a kind of Failures. Returns the next try, if the request is to be repeated.
    def failed(kind)
      return if @outcome || kind.nil? || kind == :shortage

      ended(:error)
      @following = @call.retry if kind == :connection
    end

    # The request is no longer in flight. Without an outcome, its caller has given it up.
    def finish
      return unless @started

      Thread.handle_interrupt(Object => :never) do # otherwise it could count as in flight for ever
        next unless @started && @epoch == @call.client.epoch

        ended(:cancelled)
        @call.cluster.counts.finish(@address) if @counted
        @call.client.sender.end(@lease, @outcome) if @lease
        @started = false
      end
    end

    private

    def ended(outcome)
      return if @outcome

      @outcome = outcome
      @call.cluster.counts.answered(@address, outcome, @began) if @started && @counted && @epoch == @call.client.epoch
    end
  end
end
