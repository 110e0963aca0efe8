# frozen_string_literal: true

require_relative "failures"

module Lbd
  # One try of a request, at one address. A hook reads choice, outcome, duration, request, url, status and error.
  class Attempt
    RETRIED_STATUSES = [502, 503, 504].freeze

    # Kinds of errors of a try that was not sent: the second for want of time to connect.
    UNSENT = %i[unsent cut].freeze

    attr_reader :address

    # How it ended: :success, :error, :cancelled or :unreachable; nil until then.
    attr_reader :outcome

    # Seconds until the status was there, or the try had failed. Set if there are hooks.
    attr_reader :duration

    # The status, or the error of the HTTP library; nil if there is none.
    attr_reader :status, :error

    # Seconds to connect, at most.
    attr_reader :connect_timeout

    # The next try, if this one is to be repeated.
    attr_reader :following

    # number is 1 for the first try of a request. counts are nil if requests are not counted. A try that hurries has
    # less time to connect.
    def initialize(call, choice, number, lease: nil, counts: nil, hurries: false)
      @call = call
      @choice = choice
      @address = choice.address
      @number = number
      @lease = lease
      @counts = counts
      @epoch = call.client.epoch
      @started = false
      @outcome = nil
      @following = nil
      @hurries = hurries
      @connect_timeout = [call.client.connect_timeout, *(call.cluster.connects.limit if hurries)].min
    end

    # What lbd has chosen.
    def choice
      @choice.dup.tap { |choice| choice.attempt = @number }
    end

    # The request of the HTTP library, and the URL of the program, which may have no more than host and port.
    def request
      @call.request
    end

    def url
      @call.url
    end

    def hurries?
      @hurries
    end

    # The connect took so many seconds.
    def connected(took)
      @call.cluster.connects.add(took)
    end

    # The request is in flight from now until finish.
    def start
      @began = Clock.now if @call.client.hooks
      @call.client.sender.hold(@lease) { @started = true } if @lease
      @counts&.start(@address) do |now|
        @began = now
        @started = true
      end
      @started = true
    end

    # The request is not sent: no endpoint is to blame.
    def abandon
      return unless @lease

      @call.client.sender.hold(@lease) { nil }
      @call.client.sender.end(@lease, :cancelled)
    end

    # The status and the headers of the response are there. Returns the next try if this answer is to be discarded.
    def answered(status)
      @status = status
      ended(status >= 500 ? :error : :success)
      @call.cluster.asides.answered(@address)
      if RETRIED_STATUSES.include?(status)
        @following = @call.retry(:error, 0)
      else
        @call.cluster.budget.succeeded
        nil
      end
    end

    # The request ended with an error of a kind of Failures, or of UNSENT. Returns the next try, if there is one.
    def failed(kind, error)
      @error = error
      return if @outcome || kind.nil? || kind == :shortage

      late = UNSENT.include?(kind) && @call.deadline.passed? # lbd hears nothing of it
      unsent = UNSENT.include?(kind) && !late
      outcome = unsent ? :unreachable : :error
      late ? ended(:cancelled, nil) : ended(outcome)
      @call.failed(@choice, unsent, kind == :cut && @hurries)
      finish unless @lease # the next try may have to wait
      @following = @call.retry(@outcome) if unsent || kind == :connection
    end

    # The request is no longer in flight. Without an outcome, its caller has given it up.
    def finish
      return unless @started

      Thread.handle_interrupt(Object => :never) do # otherwise it could count as in flight for ever
        next unless @started && @epoch == @call.client.epoch

        ended(:cancelled)
        @counts&.finish(@address)
        @call.client.sender.end(@lease, @outcome) if @lease
        @started = false
      end
    end

    private

    def ended(outcome, counts = @counts)
      return if @outcome

      @outcome = outcome
      return unless @started && @epoch == @call.client.epoch

      counts&.answered(@address, outcome, @began) unless outcome == :unreachable
      hooks = @call.client.hooks or return
      @duration = Clock.now - @began
      hooks.attempted(self)
    end
  end
end
