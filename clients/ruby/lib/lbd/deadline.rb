# frozen_string_literal: true

module Lbd
  # Seconds on a clock that is never set.
  module Clock
    def self.now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end

  # A point in time; without a timeout, it never comes.
  class Deadline
    def initialize(timeout)
      @at = timeout && (Clock.now + timeout)
    end

    # The seconds left, not below 0; nil if it never comes.
    def left
      @at && [@at - Clock.now, 0.0].max
    end

    def passed?
      !@at.nil? && Clock.now >= @at
    end

    # The one that comes first of this and of seconds from now.
    def within(seconds)
      @at && @at - Clock.now < seconds ? self : Deadline.new(seconds)
    end

    def at_most(seconds)
      rest = left
      rest.nil? || rest > seconds ? seconds : rest
    end
  end
end
