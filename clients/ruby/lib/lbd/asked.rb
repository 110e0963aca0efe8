# frozen_string_literal: true

require_relative "batch"

module Lbd
  # The batches of one cluster for what requests ask, all of one generation: those used last. Safe for threads.
  class Asked
    SIZE = 1000

    # Bytes of their queries, at most.
    BYTES = 4 << 20

    # Begins the part of a query for another try.
    EXCLUDE = "&exclude="

    # The query that lbd has answered last, before any answer the first one, without what it excludes.
    attr_reader :last

    def initialize
      @lock = Mutex.new
      @batches = {}
      @bytes = 0
      @calls = {}
    end

    # The batch for a query; nil if there is none.
    def [](query)
      @lock.synchronize do
        batch = @batches.delete(query) and @batches[query] = batch
        answered(query) if batch || @last.nil?
        batch
      end
    end

    # Adds a batch. One of a later generation replaces all others, and so does one that is published, which is of the
    # generation that lbd has: one of an earlier generation comes too late.
    def put(batch, published)
      @lock.synchronize do
        answered(batch.query)
        generation = batch.generation
        if generation && generation != @generation
          next unless published || @generation.nil? || generation > @generation

          @generation = generation
          @batches.clear
          @bytes = 0
        end
        @bytes += batch.query.bytesize unless @batches.delete(batch.query)
        @batches[batch.query] = batch
        @bytes -= @batches.shift[0].bytesize while @batches.size > SIZE || @bytes > BYTES
      end
    end

    # What the block returns for a query: a batch, which is kept, or an error. All that need it at the same time wait
    # for one call of the block; nil if the deadline is earlier.
    def fetch(query, deadline)
      call = @lock.synchronize do
        batch = @batches[query]
        return batch if batch && Clock.now < batch.due # of a call that has just ended

        # A call of the parent of a fork has no thread any more.
        @calls[query] = Thread.new { yield.tap { |result| ended(query, result) } } unless @calls[query]&.alive?
        @calls[query]
      end
      call.join(deadline.left)&.value
    end

    private

    def ended(query, result)
      put(result, false) if result.is_a?(Batch)
      @lock.synchronize { @calls.delete(query) }
    end

    def answered(query)
      @last = query unless query.include?(EXCLUDE)
    end
  end
end
