# frozen_string_literal: true

require "net/http"
require "lbd/faraday"

# The HTTP libraries that the runner sends requests with: with a client of lbd, or alone if client is nil. Each returns
# the status and the body, with a deadline in seconds, and what the request asks of lbd.
module Adapters
  TIMEOUTS = [Timeout::Error, Faraday::TimeoutError].freeze
  CONNECTION = [SystemCallError, SocketError, IOError, Net::HTTPBadResponse, Net::ProtocolError,
                Faraday::ConnectionFailed, Faraday::SSLError].freeze

  def self.core(client)
    return alone unless client

    lambda do |method, url, body, headers, timeout, ask|
      response = client.request(method, url, body, headers, timeout: timeout || client.timeout, ask: ask)
      [response.code.to_i, response.body.to_s]
    end
  end

  # Net::HTTP, with one connection for each thread and address.
  def self.alone
    lambda do |method, url, body, headers, timeout, _ask|
      uri = URI(url)
      http = (Thread.current[:"alone #{uri.host}:#{uri.port}"] ||= Net::HTTP.new(uri.host, uri.port, nil))
      http.max_retries = 0
      http.keep_alive_timeout = 60
      http.read_timeout = http.open_timeout = timeout || 30
      http.start unless http.started?
      response = http.send_request(method, uri.request_uri, body, headers)
      [response.code.to_i, response.body.to_s]
    rescue StandardError
      http.finish if http&.started?
      raise
    end
  end

  # Alone, with the adapter of Faraday that keeps connections open, too.
  def self.faraday(client)
    connection(Faraday.new { |f| client ? f.adapter(:lbd, client) : f.adapter(:net_http_persistent, pool_size: 100) })
  end

  def self.middleware(client)
    connection(Faraday.new do |f|
      f.request(:lbd, client) if client
      f.adapter(:net_http_persistent, pool_size: 100)
    end)
  end

  def self.connection(connection)
    connection.proxy = nil
    lambda do |method, url, body, headers, timeout, ask|
      response = connection.run_request(method.downcase.to_sym, url, body, headers) do |request|
        request.options.timeout = timeout if timeout
        request.options.context = { lbd: ask }
      end
      [response.status, response.body.to_s]
    end
  end
  private_class_method :alone, :connection

  ALL = { "core" => method(:core), "faraday" => method(:faraday), "faraday-middleware" => method(:middleware) }.freeze
end
