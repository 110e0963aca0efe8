# frozen_string_literal: true

module Lbd
  # The budget of retries of one cluster (gRFC A6). Safe for threads.
  class Budget
    def initialize(max_tokens)
      @lock = Mutex.new
      @max = @tokens = max_tokens.to_f
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
