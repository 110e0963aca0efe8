# frozen_string_literal: true

require "net/http"
require "uri"

module Lbd
  # A Net::HTTP that sends its requests through a client: see Client#net_http. It has no connection of its own.
  class NetHTTP < Net::HTTP
    # What the next requests ask, an Ask.
    attr_accessor :ask

    def self.through(client, host, port, use_ssl)
      http = new(host, port || (use_ssl ? Net::HTTP.https_default_port : Net::HTTP.http_default_port), nil)
      http.use_ssl = use_ssl
      http.instance_variable_set(:@client, client)
      http
    end

    # Raises as Client#request does.
    def request(request, body = nil, &block)
      raise ArgumentError, "the request has a body already" if body && (request.body || request.body_stream)

      request.body = body if body
      uri = (use_ssl? ? URI::HTTPS : URI::HTTP).build(host: address, port: port)
      @client.send_request(request, uri, timeout: read_timeout, open_timeout: open_timeout, ask: ask, &block)
    end

    private

    # Called by start.
    def connect; end
  end
end
