# frozen_string_literal: true

require "io/wait"
require "net/protocol"
require_relative "deadline"

module Lbd
  # A socket, with or without TLS, whose reads and writes end at a deadline, however slowly bytes come.
  class Stream
    attr_accessor :deadline

    # Whether anything was written.
    attr_accessor :sent

    def initialize(io, deadline)
      @io = io
      @deadline = deadline
    end

    def read_nonblock(length, buffer = nil, **)
      loop do
        raise Net::ReadTimeout, to_io if @deadline.passed?

        result = @io.read_nonblock(length, buffer, exception: false)
        return result unless result.is_a?(Symbol)

        wait(result) or raise Net::ReadTimeout, to_io
      end
    end

    def write_nonblock(data, **)
      loop do
        raise Net::WriteTimeout, to_io if @deadline.passed?

        result = @io.write_nonblock(data, exception: false)
        @sent = true unless result.is_a?(Symbol)
        return result unless result.is_a?(Symbol)

        wait(result) or raise Net::WriteTimeout, to_io
      end
    end

    # Starts TLS, and checks that the certificate is for name, unless the context checks nothing.
    def encrypt(context, name)
      tls = OpenSSL::SSL::SSLSocket.new(@io, context)
      tls.hostname = name unless name.match?(/\A[\d.]+\z|:/) # an IP address
      until (result = tls.connect_nonblock(exception: false)).equal?(tls)
        wait(result) or raise Net::OpenTimeout, "TLS handshake"
      end
      tls.post_connection_check(name) unless context.verify_mode == OpenSSL::SSL::VERIFY_NONE
      @io = tls
    end

    # Whether an idle connection can be used: nothing has come, not even its end.
    def idle?
      !closed? && !to_io.wait_readable(0)
    end

    def to_io
      @io.to_io
    end

    def eof?
      @io.eof?
    end

    def closed?
      to_io.closed?
    end

    # Closes the socket only: in a child of fork, an end of TLS would end the connection of the parent.
    def close
      to_io.close
    end

    private

    def wait(what)
      what == :wait_readable ? to_io.wait_readable(@deadline.left) : to_io.wait_writable(@deadline.left)
    end
  end
end
