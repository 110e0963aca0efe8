# frozen_string_literal: true

require "json"
require "uri"
require_relative "connection"
require_relative "errors"
require_relative "failures"
require_relative "pool"
require_relative "tls"
require_relative "version"

module Lbd
  # A call failed: lbd is unreachable, or what came is not a complete answer.
  class Unreachable < StandardError
  end

  # lbd's HTTP API at one address. Safe for threads.
  class Api
    SOCKETS = %w[/run/lbd.sock /run/lbd/lbd.sock].freeze

    # Seconds for a call that does not wait.
    CALL_TIMEOUT = 2.0

    # Bytes of an answer, at most.
    MAX_ANSWER = 16 << 20

    def self.default_address
      socket = SOCKETS.find { |path| File.socket?(path) }
      socket ? "unix:#{socket}" : "http://localhost:8080"
    end

    def self.duration(seconds)
      "#{[(seconds * 1000).to_i, 0].max}ms"
    end

    def self.escape(text)
      URI.encode_www_form_component(text).gsub("+", "%20")
    end

    # found says how the address was found. Raises an ArgumentError if lbd is not an address.
    def initialize(lbd, token, token_file, ca, found: "the setting lbd", hooks: nil)
      @at = "#{lbd} (#{found})"
      @hooks = hooks
      @token_file = token_file
      @token = token || read_token
      @pool = Pool.new
      if lbd.start_with?("unix:")
        @target = lbd.sub("unix://", "unix:")
        @host = "localhost"
        Socket.sockaddr_un(@target.delete_prefix("unix:")) # checks its length
      else
        parse(lbd, ca)
      end
    end

    # The answer to a call. Raises Unreachable, or the Error for an answer that rejects.
    # asks is added to the parameters. The text of an error has neither. hooks is nil for a call that ends with its
    # request: then lbd may have had no time.
    def call(method, path, parameters: {}, asks: "", body: nil, cluster: "", deadline: Deadline.new(CALL_TIMEOUT),
             hooks: @hooks)
      called = "#{method} #{path}"
      path += "?#{URI.encode_www_form(parameters)}#{asks}" unless parameters.empty?
      body &&= JSON.generate(body)
      token = @token
      response, content = exchange(method, path, body, token, deadline)
      if response.code == "401" && (fresh = read_token) && fresh != token
        @token = fresh
        response, content = exchange(method, path, body, fresh, deadline)
      end
      answer = answer_of(response, content, cluster)
      if path.start_with?("/v1/pick?") && (answer.keys & %w[picks address]).empty?
        raise Unreachable, "the answer has no picks"
      end

      hooks&.reached
      answer
    rescue Error
      hooks&.reached
      raise
    rescue Unreachable, *Failures::ALL => error
      cause = error.is_a?(Unreachable) ? error.message : "#{error.class}: #{error.message}"
      error = Unreachable.new("#{called} at #{@at}: #{cause}")
      hooks&.reached(error)
      raise error
    end

    # Without the token.
    def inspect
      "#<#{self.class} #{@target}>"
    end

    def close
      @pool.close
    end

    def after_fork
      @pool.after_fork
    end

    private

    def parse(lbd, ca)
      uri = URI(lbd)
      raise ArgumentError unless uri.is_a?(URI::HTTP) && uri.hostname && uri.path.delete("/").empty? && !uri.userinfo

      @target = @host = "#{uri.host}:#{uri.port}"
      @name = uri.hostname
      @context = Tls.context(ca ? { ca_file: ca } : {}) if uri.is_a?(URI::HTTPS)
    rescue URI::InvalidURIError, ArgumentError
      lbd = lbd.sub(/.*@/m, "…@") # it may be a password
      raise ArgumentError, "lbd: #{lbd.inspect} is not unix:PATH, http://HOST:PORT or https://HOST:PORT"
    end

    def read_token
      @token_file && File.read(@token_file).strip
    rescue SystemCallError
      @token
    end

    def exchange(method, path, body, token, deadline)
      request = Net::HTTPGenericRequest.new(method, !body.nil?, true, path, headers(token))
      if body
        request.body = body
        request["Content-Type"] = "application/json"
      end
      open = -> { Connection.open(@target, deadline, @context, @name) }
      @pool.use(nil, open) { |connection| once(connection, request, deadline) }
    end

    def once(connection, request, deadline)
      content = +""
      response = connection.exchange(request, deadline, @host, 0) do |answer|
        answer.read_body do |part|
          content << part
          raise Net::ProtocolError, "the answer has more than #{MAX_ANSWER} bytes" if content.bytesize > MAX_ANSWER
        end
      end
      [response, content]
    end

    def headers(token)
      fields = { "Host" => @host, "Accept" => "application/json", "Accept-Encoding" => "identity",
                 "User-Agent" => "lbd-client-ruby/#{VERSION}" }
      fields["Authorization"] = "Bearer #{token}" if token
      fields
    end

    def answer_of(response, content, cluster)
      status = Integer(response.code)
      answer = decode(content)
      if [200, 201].include?(status)
        return answer if answer

        raise Unreachable, "the answer is not JSON"
      end
      unless answer&.fetch("code", nil).is_a?(String) || [401, 403, 429].include?(status)
        raise Unreachable, "status #{status} without a code of lbd"
      end

      after = response["Retry-After"].to_s
      raise Errors.of_answer(cluster, status, answer || {}, after.match?(/\A\d{1,5}\z/) ? after.to_f : 0.0)
    end

    def decode(content)
      answer = JSON.parse(content.force_encoding(Encoding::UTF_8))
      answer if answer.is_a?(Hash)
    rescue JSON::ParserError, EncodingError
      nil
    end
  end
end
