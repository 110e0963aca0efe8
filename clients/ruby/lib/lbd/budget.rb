# frozen_string_literal: true

module Lbd
  # The budget of retries of one cluster (gRFC A6). Safe for threads.
  class Budget
    def initialize(max_tokens)
      @lock = Mutex.new
      @first = @max = @tokens = max_tokens.to_f
    end

    # Makes the budget fit batches of size picks, if they are larger than the first one: a busy process may repeat more.
    def fit(size, first)
      @lock.synchronize do
        max = @first * [size, first].max / first
        @tokens += [max - @max, 0.0].max
        @max = max
      end
    end

    # Takes a token, and says whether a retry is permitted.
    def failed
      @lock.synchronize do
        @tokens = [@tokens - 1, 0.0].max
        @tokens > @max / 2
      end
    end

    def succeeded
      return if @tokens >= @max

      @lock.synchronize { @tokens = [@tokens + 0.1, @max].min }
    end
  end
end
