# frozen_string_literal: true

require_relative "deadline"

module Lbd
  # A lease of a request in flight.
  class Lease
    attr_reader :id, :ttl, :deadline
    attr_accessor :renew_at

    # deadline is that of the request.
    def initialize(id, ttl, deadline)
      @id = id
      @ttl = ttl
      @deadline = deadline
      @renew_at = Clock.now + (ttl / 2)
    end
  end
end
