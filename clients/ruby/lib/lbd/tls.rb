# frozen_string_literal: true

require "openssl"

module Lbd
  # TLS of connections to lbd and to upstreams.
  module Tls
    # A context that checks certificates with those in the PEM file ca, or with those of the system.
    def self.context(ca = nil)
      context = OpenSSL::SSL::SSLContext.new
      context.set_params(ca ? { ca_file: ca } : {})
      context.verify_hostname = false # Stream#encrypt does it, also for IP addresses
      context
    end
  end
end
