# frozen_string_literal: true

require "socket"

# An HTTP server on loopback, which answers with its address, or as the block says: it gets a Request, and returns
# :close to end the connection.
class Upstream
  # What came, and the socket for the answer.
  Request = Struct.new(:verb, :path, :headers, :body, :socket, :upstream) do
    def reply(status = 200, body = upstream.address, headers = {})
      fields = { "Content-Length" => body.bytesize }.merge(headers).compact
      head = fields.map { |name, value| "#{name}: #{value}\r\n" }.join
      socket.write("HTTP/1.1 #{status} Status\r\n#{head}\r\n#{body unless verb == "HEAD"}")
    end
  end

  attr_reader :address, :requests, :connections

  def initialize(context = nil, &behavior)
    @behavior = behavior || :reply.to_proc
    @requests = Queue.new
    @connections = Queue.new
    @server = TCPServer.new("127.0.0.1", 0)
    @server.listen(1024)
    @address = "127.0.0.1:#{@server.local_address.ip_port}"
    @thread = Thread.new { accept(context) }
  end

  # The requests so far, as [method, path, host, body].
  def seen
    Array.new(@requests.size) { @requests.pop.then { |r| [r.verb, r.path, r.headers["host"], r.body] } }
  end

  # Whether all connections so far have ended.
  def idle?
    Array.new(@connections.size) { @connections.pop.tap { |thread| @connections << thread } }.none?(&:alive?)
  end

  def close
    @thread.kill
    @server.close
    @connections.pop.kill until @connections.empty?
  end

  private

  def accept(context)
    loop do
      socket = @server.accept
      @connections << Thread.new { serve(socket, context) }
    end
  end

  def serve(socket, context)
    socket = OpenSSL::SSL::SSLSocket.new(socket, context).tap(&:accept) if context
    while (request = read(socket))
      @requests << request
      break if @behavior.call(request) == :close
    end
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
    nil # a client may close its connection at any time
  ensure
    socket.close
  end

  def read(socket)
    method, path = socket.gets&.split
    return unless method

    headers = {}
    while (line = socket.gets) && line != "\r\n"
      name, value = line.chomp.split(": ", 2)
      headers[name.downcase] = value
    end
    Request.new(method, path, headers, body(socket, headers), socket, self)
  end

  def body(socket, headers)
    return socket.read(headers["content-length"].to_i) unless headers["transfer-encoding"] == "chunked"

    content = +""
    until (size = Integer(socket.gets || raise(EOFError), 16)).zero?
      content << socket.read(size)
      socket.gets
    end
    socket.gets
    content
  end
end
