# frozen_string_literal: true

require "openssl"

module Lbd
  # TLS of connections to lbd and to upstreams.
  module Tls
    # A context that checks certificates with those that params of SSLContext#set_params have, or those of the system.
    def self.context(params = {})
      context = OpenSSL::SSL::SSLContext.new
      context.set_params(params)
      context.verify_hostname = false # Stream#encrypt does it, also for IP addresses
      context
    end
  end
end
