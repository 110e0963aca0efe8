# frozen_string_literal: true

require "minitest/autorun"
require "minitest/mock"
require "lbd"
require_relative "daemon"
require_relative "http_proxy"
require_relative "upstream"

# A test with a real daemon and real upstreams.
class Case < Minitest::Test
  TEXT = { "Content-Type" => "text/plain" }.freeze
  RESET = ->(_) { :close }

  def self.status(code)
    ->(request) { request.reply(code, "no") }
  end

  def setup
    @closing = []
    @cluster = "#{self.class.name}-#{name}".downcase.tr("_:", "-")
    @url = "http://#{@cluster}.lbd"
  end

  def teardown
    @closing.reverse_each(&:close)
  end

  def daemon
    Daemon.shared
  end

  def upstream(&behavior)
    Upstream.new(&behavior).tap { |upstream| @closing << upstream }
  end

  # Makes upstreams the endpoints of the cluster of this test.
  def upstreams(*behaviors)
    upstreams = behaviors.map { |behavior| upstream(&behavior) }
    daemon.push(@cluster, upstreams.map(&:address))
    upstreams
  end

  def client(lbd = daemon.lbd, **settings)
    Lbd::Client.new(lbd, **settings).tap { |client| @closing << client }
  end

  # The address of a server whose queue is full: connects to it wait.
  def full_server
    server = Socket.new(:INET, :STREAM)
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(0)
    @closing << server
    address = server.local_address
    4.times do
      socket = Socket.new(:INET, :STREAM)
      @closing << socket
      socket.connect_nonblock(address, exception: false)
    end
    address.inspect_sockaddr
  end

  # An address that refuses connections.
  def refusing
    socket = Socket.new(:INET, :STREAM)
    @closing << socket
    socket.bind(Addrinfo.tcp("127.0.0.1", 0))
    socket.local_address.inspect_sockaddr
  end

  # Replaces a constant of Cluster in a test.
  def with(name, value)
    old = Lbd::Cluster.const_get(name)
    set = lambda do |new|
      Lbd::Cluster.send(:remove_const, name)
      Lbd::Cluster.const_set(name, new)
    end
    set.call(value)
    yield
  ensure
    set.call(old)
  end

  def eventually(what, &block)
    Daemon.until(what, &block)
  end
end
