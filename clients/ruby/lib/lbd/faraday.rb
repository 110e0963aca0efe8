# frozen_string_literal: true

require "faraday"
require_relative "../lbd"

module Lbd
  # Requests of Faraday to hosts CLUSTER.lbd go to the endpoints that lbd picks:
  #
  #     Faraday.new { |f| f.adapter :lbd, client }    # over the connections of the client, which stay open
  #     Faraday.new { |f| f.request :lbd, client }    # over those of the adapter that f has
  #
  #     connection.get(url) { |request| request.options.context = { lbd: Lbd::Ask.new(hash_key: user) } }
  module Faraday
    # Lbd::Dropped, for callers that expect a Faraday::Error.
    class Dropped < ::Faraday::Error
      include Lbd::Dropped
    end

    # Lbd::CircuitBroken, for callers that expect a Faraday::Error.
    class CircuitBroken < ::Faraday::Error
      include Lbd::CircuitBroken
    end

    # Lbd::Unavailable, for callers that expect a Faraday::ConnectionFailed.
    class Unavailable < ::Faraday::ConnectionFailed
      include Lbd::Unavailable
    end

    # Lbd::UnknownCluster, for callers that expect a Faraday::Error.
    class UnknownCluster < ::Faraday::Error
      include Lbd::UnknownCluster
    end

    # Lbd::PermissionDenied, for callers that expect a Faraday::Error.
    class PermissionDenied < ::Faraday::Error
      include Lbd::PermissionDenied
    end

    ERRORS = {
      Lbd::Dropped => Dropped, Lbd::CircuitBroken => CircuitBroken, Lbd::Unavailable => Unavailable,
      Lbd::UnknownCluster => UnknownCluster, Lbd::PermissionDenied => PermissionDenied
    }.freeze

    # What the program asks of lbd for a request, an Ask.
    def self.ask(env)
      env.request.context&.fetch(:lbd, nil)
    end

    # Raises the errors of lbd, and of Net::HTTP, as those of Faraday.
    def self.translate
      yield
    rescue Error => error
      raise Errors.like(error, ERRORS)
    rescue OpenSSL::SSL::SSLError => error
      raise ::Faraday::SSLError, error
    rescue *Failures::ALL => error
      raise ::Faraday::TimeoutError, error if Failures.kind(error) == :timeout && !error.is_a?(ConnectTimeout)

      raise ::Faraday::ConnectionFailed, error
    end
  end
end

require_relative "faraday/adapter"
require_relative "faraday/middleware"
