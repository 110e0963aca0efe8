# frozen_string_literal: true

require "rbconfig"

# A process that is a proxy of HTTP, and prints the URLs of requests. Its answer is always "proxy".
class HttpProxy
  PROGRAM = <<~'RUBY'
    require "socket"
    server = TCPServer.new("127.0.0.1", 0)
    $stdout.sync = true
    puts server.local_address.ip_port
    loop do
      socket = server.accept
      puts socket.gets.split[1]
      nil until socket.gets == "\r\n"
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nproxy")
      socket.close
    end
  RUBY

  # Yields while a proxy is that of the environment, and returns the URLs.
  def self.used
    IO.popen([RbConfig.ruby, "-e", PROGRAM]) do |io|
      ENV["http_proxy"] = "http://127.0.0.1:#{io.gets.chomp}"
      begin
        yield
      ensure
        ENV.delete("http_proxy")
        Process.kill(:TERM, io.pid)
      end
      io.read.split
    end
  end
end
