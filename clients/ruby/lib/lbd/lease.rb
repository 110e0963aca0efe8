# frozen_string_literal: true

require_relative "deadline"

module Lbd
  # A lease of a request in flight.
  class Lease
    attr_reader :id, :ttl
    attr_accessor :renew_at

    def initialize(id, ttl)
      @id = id
      @ttl = ttl
      @renew_at = Clock.now + (ttl / 2)
    end
  end
end
