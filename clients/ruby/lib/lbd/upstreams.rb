# frozen_string_literal: true

require_relative "connection"
require_relative "pool"
require_relative "tls"

module Lbd
  # There is no connection to an endpoint within connect_timeout.
  class ConnectTimeout < Net::OpenTimeout
  end

  # The requests of one client to upstreams, and its connections to them. Safe for threads.
  class Upstreams
    IDEMPOTENT = %w[GET HEAD OPTIONS PUT DELETE].freeze
    CONTEXTS_MAX = 100

    # A body of a request that the caller gave as an IO. Its errors are not those of an endpoint.
    class Body
      attr_reader :error

      def initialize(source)
        @source = source
      end

      def read(*arguments)
        @source.read(*arguments)
      rescue StandardError => error
        @error = error
        raise
      end
    end
    private_constant :Body

    def initialize(client)
      @client = client
      @pool = Pool.new
      @contexts = {}
    end

    # What is the same in all tries of a request.
    Exchange = Struct.new(:request, :uri, :deadline, :connect, :repeatable, :body, :ssl, :connecting) do
      # The kind of Failures of an error, or of Attempt::UNSENT.
      def kind(error)
        return if body && error.equal?(body.error)
        return :cut if error.is_a?(ConnectTimeout)

        kind = Failures.kind(error)
        connecting && (kind == :connection || (kind == :timeout && deadline.passed?)) ? :unsent : kind
      end
    end
    private_constant :Exchange

    # Sends a request, and returns the response with its body. Yields the response when its headers are there.
    def send_request(request, uri, deadline, open_timeout, idempotent, ssl, ask, &block)
      body = stream(request)
      request["Host"] ||= authority(uri)
      connect = [open_timeout, @client.connect_timeout].compact.min
      exchange = Exchange.new(request, uri, deadline, connect, repeatable?(request, idempotent), body, ssl)
      host = @client.host_of(uri.hostname)
      unless host
        Processes.check # the pool may be that of the parent
        return once("#{uri.host}:#{uri.port}", exchange, &block)
      end

      query = host.query(request.path, ask) { |name| request.get_fields(name) }
      call = @client.call(host.name, deadline, exchange.repeatable, query, ask, request, uri)
      call.run(exchange.method(:kind)) { |attempt| try(attempt, exchange, &block) }
    end

    def close
      @pool.close
    end

    def after_fork
      @pool.after_fork
    end

    private

    def stream(request)
      return unless request.body_stream

      request["Transfer-Encoding"] = "chunked" unless request["Content-Length"]
      request.body_stream = Body.new(request.body_stream)
    end

    def repeatable?(request, idempotent)
      idempotent = IDEMPOTENT.include?(request.method) || request.key?("Idempotency-Key") if idempotent.nil?
      idempotent && request.body_stream.nil?
    end

    def authority(uri)
      uri.port == uri.default_port ? uri.host : "#{uri.host}:#{uri.port}"
    end

    def try(attempt, exchange)
      once(attempt.address, exchange, attempt) do |response|
        return nil if attempt.answered(Integer(response.code)) # closes the connection: the body can be long

        yield response if block_given?
      end
    end

    def once(address, exchange, attempt = nil)
      uri = exchange.uri
      tls = uri.is_a?(URI::HTTPS)
      open = -> { connect(address, exchange, attempt, (context(exchange.ssl) if tls)) }
      exchange.connecting = false
      @pool.use([address, tls && [uri.hostname, exchange.ssl]], open, repeatable: exchange.repeatable) do |connection|
        connection.exchange(exchange.request, exchange.deadline, uri.host, uri.port) do |response|
          response.uri ||= uri
          yield response if block_given?
        end
      end
    end

    def connect(address, exchange, attempt, context)
      exchange.connecting = true
      within = [exchange.connect, attempt&.connect_timeout].compact.min
      began = Clock.now
      connection = Connection.open(address, exchange.deadline.within(within), context, exchange.uri.hostname)
      attempt&.connected(Clock.now - began)
      exchange.connecting = false
      connection
    rescue Net::OpenTimeout
      raise if exchange.deadline.passed?

      raise ConnectTimeout, "no connection to #{address} within #{within} s"
    end

    def context(ssl)
      @contexts = {} if @contexts.size >= CONTEXTS_MAX
      @contexts[ssl] ||= Tls.context(ssl)
    end
  end
end
