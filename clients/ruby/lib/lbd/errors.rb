# frozen_string_literal: true

module Lbd
  # Included in all errors of requests that got no endpoint from lbd.
  #
  # Error and its kinds are modules, so that the errors of an HTTP library can be of them, too: rescue them like
  # classes, and raise them like classes in tests.
  module Error
    # The cluster of the request.
    attr_reader :cluster

    # The code of lbd's answer; "" if lbd did not answer.
    attr_reader :code

    # Seconds after which lbd wants to be asked again; 0 if it did not say.
    attr_reader :retry_after

    # Sets the details, and returns the error.
    def about(cluster:, code: "", retry_after: 0.0)
      @cluster = cluster
      @code = code
      @retry_after = retry_after
      self
    end
  end

  # Lets `raise Lbd::Dropped, "message"` raise an error of a kind.
  module Kind
    def exception(message = name)
      Errors::CLASSES.fetch(self).new(message).about(cluster: "")
    end
  end

  # The drop policy of the cluster rejected the request. Do not retry it: the operator wants less load.
  module Dropped
    include Error
    extend Kind
  end

  # The circuit breaker of the cluster is full. Do not retry at once.
  module CircuitBroken
    include Error
    extend Kind
  end

  # lbd has no endpoint, or is unreachable and the last batch is too old.
  module Unavailable
    include Error
    extend Kind
  end

  # lbd does not know the cluster, or the target.
  module UnknownCluster
    include Error
    extend Kind
  end

  # lbd rejected the token, or it does not permit picks from this cluster.
  module PermissionDenied
    include Error
    extend Kind
  end

  # The errors that Client#request raises.
  module Errors
    class Dropped < StandardError
      include Lbd::Dropped
    end

    class CircuitBroken < StandardError
      include Lbd::CircuitBroken
    end

    class Unavailable < StandardError
      include Lbd::Unavailable
    end

    class UnknownCluster < StandardError
      include Lbd::UnknownCluster
    end

    class PermissionDenied < StandardError
      include Lbd::PermissionDenied
    end

    CLASSES = {
      Lbd::Dropped => Dropped, Lbd::CircuitBroken => CircuitBroken, Lbd::Unavailable => Unavailable,
      Lbd::UnknownCluster => UnknownCluster, Lbd::PermissionDenied => PermissionDenied
    }.freeze

    BY_CODE = {
      "dropped" => Dropped, "circuit_broken" => CircuitBroken, "unknown_cluster" => UnknownCluster,
      "unknown_target" => UnknownCluster, "permission_denied" => PermissionDenied, "unauthenticated" => PermissionDenied
    }.freeze
    private_constant :BY_CODE

    # The error for an answer of lbd that rejects; problem is its body (RFC 9457), or empty.
    def self.of_answer(cluster, status, problem, retry_after)
      code = problem["code"].is_a?(String) ? problem["code"] : ""
      kind = BY_CODE.fetch(code) { [401, 403].include?(status) ? PermissionDenied : Unavailable }
      detail = problem["detail"] || problem["title"] || "status #{status}"
      detail += ", category #{problem["category"]}" if problem["category"]
      message = "lbd: cluster #{cluster}: #{detail}#{" (#{code})" unless code.empty?}"
      kind.new(message).about(cluster: cluster, code: code.empty? ? status.to_s : code, retry_after: retry_after)
    end

    # The error of a request when lbd is not the one who said so.
    def self.unavailable(cluster, reason)
      Unavailable.new("lbd: cluster #{cluster}: #{reason}").about(cluster: cluster)
    end

    # That of a request when a call to lbd has failed.
    def self.unreachable(cluster, error)
      unavailable(cluster, "lbd is unreachable: #{error.message}")
    end

    # The same error for another request, as one of kinds if it has one for it.
    def self.like(error, kinds = CLASSES)
      kind = kinds.find { |type, _| error.is_a?(type) }&.last || error.class
      kind.new(error.message).about(cluster: error.cluster, code: error.code, retry_after: error.retry_after)
    end
  end
end
