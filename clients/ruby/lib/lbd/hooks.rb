# frozen_string_literal: true

module Lbd
  # The functions and the logger of a program that wants to know of tries, and of the state of lbd. Safe for threads.
  class Hooks
    # nil if the program wants to know nothing.
    def self.of(*functions)
      new(*functions) if functions.any?
    end

    def initialize(on_attempt, on_state, logger)
      @on_attempt = on_attempt
      @on_state = on_state
      @logger = logger
      @lock = Mutex.new
      @state = :recovered
      @closed = false
    end

    # A try of a request has ended.
    def attempted(attempt)
      @logger&.debug do
        choice = attempt.choice
        "lbd: cluster #{choice.cluster}: try #{choice.attempt} at #{choice.address}: #{attempt.outcome} after " \
          "#{attempt.duration.round(6)} s"
      end
      call(@on_attempt, attempt)
    end

    # A call to lbd has ended, with an error if there was no answer.
    def reached(error = nil)
      changed(error ? :unreachable : :recovered, error) if error.nil? == (@state != :recovered)
    end

    # A request has found that lbd is unreachable, and its batch is too old.
    def stale(error)
      changed(:stale, error)
    end

    # Nothing changes any more.
    def close
      @closed = true
    end

    private

    def changed(state, error)
      @lock.synchronize do
        return if @closed || @state == state

        @state = state
      end
      error ? @logger&.warn("lbd: #{state}: #{error.message}") : @logger&.info("lbd: #{state}")
      call(@on_state, state)
    end

    def call(hook, what)
      hook&.call(what)
    rescue StandardError, ScriptError => error
      @logger&.error("lbd: a hook has failed: #{error.message} (#{error.class})")
    end
  end
end
