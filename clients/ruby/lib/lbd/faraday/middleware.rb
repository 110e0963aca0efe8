# frozen_string_literal: true

require "English"

module Lbd
  module Faraday # :nodoc:
    # Sends requests to hosts of clusters to the endpoints that lbd picks, with the adapter of the connection. Those
    # with https use the connections of the client: an adapter would check the certificate for the address.
    #
    # The deadline of a request is its read_timeout or timeout, else the timeout of the client. The adapter starts it
    # again with each part of the response that it reads.
    class Middleware < ::Faraday::Middleware
      IDEMPOTENT = %i[get head options put delete].freeze

      # Faraday finds the proxy of the environment. Net::HTTP would do so, too, with Faraday 1.
      module Direct
        def net_http_connection(env)
          super.tap { |http| http.proxy_from_env = false if http.is_a?(Net::HTTP) && !env[:request][:proxy] }
        end
      end

      def initialize(app, client)
        super(app)
        @client = client
        @https = Adapter.new(nil, client, other: nil) if app.is_a?(::Faraday::Adapter)
        adapter = app
        adapter = adapter.instance_variable_get(:@app) until adapter.nil? || adapter.is_a?(::Faraday::Adapter)
        adapter.extend(Direct) if adapter.respond_to?(:net_http_connection, true)
      end

      def call(env)
        host = @client.host_of(env.url.hostname)
        return @app.call(env) unless host

        check(env)
        return @https.call(env) if env.url.scheme == "https"

        env.request_headers["Host"] ||= host_of(env.url)
        deadline = Deadline.new(env.request.read_timeout || env.request.timeout || @client.timeout)
        url, options, rescuing = env.url, env.request, $ERROR_INFO
        kind = ->(error) { kind(error, rescuing) }
        ask = Faraday.ask(env)
        query = host.query(url.path, ask) { |name| Array(env.request_headers[name]) }
        Faraday.translate do
          @client.call(host.name, deadline, repeatable?(env), query, ask, env, url).run(kind) do |attempt|
            prepare(env, url, options, attempt, deadline)
            try(env, attempt)
          end
        end
      ensure
        env.url, env.request = url, options if url
      end

      private

      def check(env)
        raise ArgumentError, "lbd: parallel requests are not supported" if env.parallel?
        return if env.url.scheme == "http" || @https

        raise ArgumentError, "lbd: https needs f.adapter :lbd, or f.request :lbd just before the adapter"
      end

      def host_of(url)
        url.port == url.default_port ? url.host : "#{url.host}:#{url.port}"
      end

      def repeatable?(env)
        return false if env.body.respond_to?(:read) || env.request.on_data

        IDEMPOTENT.include?(env.method) || env.request_headers.key?("Idempotency-Key")
      end

      def prepare(env, url, options, attempt, deadline)
        host, _, port = attempt.address.rpartition(":")
        env.url = url.dup
        env.url.host = host
        env.url.port = Integer(port)
        left = deadline.left
        env.request = options.dup
        env.request.proxy = nil
        env.request.timeout = env.request.read_timeout = env.request.write_timeout = left
        env.request.open_timeout = [options.open_timeout || options.timeout, attempt.connect_timeout, left].compact.min
        env.status = env.response = env.response_headers = env.response_body = nil
      end

      def try(env, attempt)
        began = Clock.now
        response = @app.call(env)
        # An adapter does not say how long a connect took: this is no less, and for one that was cut before.
        attempt.connected(Clock.now - began) unless attempt.hurries?
        attempt.answered(env.status)
        response
      rescue StandardError
        # A middleware below can reject an answer.
        raise unless env.status && attempt.answered(env.status)
      end

      # Adapters raise errors of their own: what they are is in their causes, up to what the caller is rescuing.
      def kind(error, rescuing)
        kinds = []
        while error && !error.equal?(rescuing)
          kinds << kind_of(error)
          error = error.cause
        end
        (kinds & [:shortage, *Attempt::UNSENT]).min_by { |each| each == :shortage ? 0 : 1 } || kinds.compact.last
      end

      def kind_of(error)
        connecting = error.message.start_with?("Failed to open TCP connection") # says Net::HTTP
        case error
        when Net::OpenTimeout, *(Errno::ETIMEDOUT if connecting) then :cut
        when Errno::ECONNREFUSED, *(SystemCallError if connecting) then :unsent
        when ::Faraday::TimeoutError then :timeout
        when ::Faraday::ConnectionFailed, ::Faraday::SSLError then :connection
        else Failures.kind(error)
        end
      end
    end

    ::Faraday::Request.register_middleware(lbd: Middleware)
  end
end
