# frozen_string_literal: true

require "net/http"
require "openssl"
require "socket"
require_relative "failures"
require_relative "stream"

module Lbd
  # A connection of Net::HTTP to HOST:PORT, [IPV6]:PORT or unix:PATH, whose requests end at their deadlines.
  class Connection < Net::HTTP
    # As Net::BufferedIO, but a body that ends early is an error.
    class Buffer < Net::BufferedIO
      def read(length, destination = "".b, _ignore_eof = nil)
        super(length, destination, false)
      end

      # Whether more has come than has been read.
      def pending?
        respond_to?(:rbuf_size, true) ? rbuf_size.positive? : !@rbuf.empty?
      end
    end
    private_constant :Buffer

    attr_accessor :idle_since

    # Connects. name is that of the server in its certificate, and context is nil without TLS.
    def self.open(target, deadline, context = nil, name = "")
      connection = new("localhost", 80, nil) # no proxy
      connection.dial(target, deadline, context, name)
      connection
    end

    def dial(target, deadline, context, name)
      @target = target
      @deadline = deadline
      @context = context
      @name = name
      self.max_retries = 0
      start
    end

    # Sends a request; yields the response when its status and headers are there, then reads its body. The connection
    # is closed unless all of it has come.
    def exchange(request, deadline, host, port)
      @address, @port = host, port # for the URI of the response
      @last_communicated = nil # the pool has checked the connection
      @deadline = @stream.deadline = deadline
      @answered = complete = @stream.sent = false
      response = self.request(request) do |answer|
        @answered = true
        yield answer
      end
      complete = true
      response
    ensure
      close unless complete
    end

    # Whether the response to the last request has begun.
    def answered?
      @answered
    end

    # Whether something of the last request was sent.
    def sent?
      @stream.sent
    end

    def use_ssl?
      !@context.nil?
    end

    # Whether the connection can be used for another request: nothing has come that no request asked for.
    def usable?
      !@socket.pending? && @stream.idle?
    end

    def closed?
      @stream.closed?
    end

    def close
      @stream.close
    end

    private

    # Called by Net::HTTP.
    def connect
      raise Net::OpenTimeout, @target if @deadline.passed?

      @stream = Stream.new(socket, @deadline)
      @stream.encrypt(@context, @name) if @context
      @socket = Buffer.new(@stream)
    rescue StandardError => error
      @stream&.close
      raise unless @deadline.passed? && Failures.kind(error) == :connection

      raise Net::OpenTimeout, @target
    end

    def socket
      return unix_socket(@target.delete_prefix("unix:")) if @target.start_with?("unix:")

      host, _, port = @target.rpartition(":")
      socket = Socket.tcp(host.delete_prefix("[").delete_suffix("]"), port, connect_timeout: @deadline.left)
      socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
      socket
    end

    # Without blocking: a connect to a socket whose queue is full would wait without end.
    def unix_socket(path)
      socket = Socket.new(:UNIX, :STREAM)
      socket.connect_nonblock(Socket.sockaddr_un(path))
      socket
    rescue StandardError
      socket&.close
      raise
    end
  end
end
