# frozen_string_literal: true

module Lbd
  module Faraday # :nodoc:
    # Sends requests to hosts of clusters over the connections of a client, and the others with another adapter.
    #
    # The deadline of a request is its read_timeout or timeout, else the timeout of the client.
    class Adapter < ::Faraday::Adapter
      # The options ssl of Faraday, as params of an SSLContext.
      SSL_PARAMS = {
        ca_file: :ca_file, ca_path: :ca_path, cert_store: :cert_store, client_cert: :cert, client_key: :key,
        verify_mode: :verify_mode, verify_depth: :verify_depth, min_version: :min_version, max_version: :max_version
      }.freeze

      # other is the adapter of requests that are not for lbd; the block configures it.
      def initialize(app, client, other: ::Faraday.default_adapter, &block)
        super(app)
        @client = client
        @other = ::Faraday::Adapter.lookup_middleware(other).new(app, &block) if other
      end

      def call(env)
        return @other.call(env) unless @client.cluster_of(env.url.hostname)

        super
        response = Faraday.translate { perform(env, ssl_params(env)) }
        body = env.request.on_data ? nil : response.body || +""
        save_response(env, Integer(response.code), body, nil, response.message) do |headers|
          response.each_header { |name, value| headers[name] = value }
        end
        @app.call(env)
      end

      private

      # To ignore an option silently could mean not to check a certificate as wanted.
      def ssl_params(env)
        options = (env.ssl&.to_hash if env.url.scheme == "https") || {}
        unknown = options.keys - SSL_PARAMS.keys - [:verify]
        raise ArgumentError, "ssl: the adapter :lbd has no option #{unknown.join(", ")}" if unknown.any?

        params = options.slice(*SSL_PARAMS.keys).transform_keys(SSL_PARAMS)
        options[:verify] == false ? { verify_mode: OpenSSL::SSL::VERIFY_NONE }.merge(params) : params
      end

      def perform(env, ssl)
        options = env.request
        @client.send_request(request(env), env.url, ask: Faraday.ask(env), ssl: ssl,
                                                    timeout: request_timeout(:read, options) || @client.timeout,
                                                    open_timeout: request_timeout(:open, options)) do |response|
          stream(env, response) if options.on_data
        end
      end

      def request(env)
        body = env[:body]
        request = Net::HTTPGenericRequest.new(env.method.to_s.upcase, !body.nil?, env.method != :head,
                                              env.url.request_uri, env.request_headers)
        body.respond_to?(:read) ? request.body_stream = body : request.body = body
        request
      end

      def stream(env, response)
        env.status = Integer(response.code)
        size = 0
        response.read_body do |part|
          size += part.bytesize
          arguments = [part, size]
          arguments << env if env.respond_to?(:stream_response) # since Faraday 2.5
          env.request.on_data.call(*arguments)
        end
      end
    end

    ::Faraday::Adapter.register_middleware(lbd: Adapter)
  end
end
