# frozen_string_literal: true

require "json"
require "net/http"
require "socket"
require "tmpdir"

# lbd, on a unix socket.
class Daemon
  BINARY = ENV.fetch("LBD_BIN") { File.expand_path("../../../bin/lbd", __dir__) }
  DEADLINE = 120

  # Waits until the block returns what is true, and returns it.
  def self.until(what)
    limit = now + DEADLINE
    loop do
      result = yield
      return result if result
      raise "not within #{DEADLINE} s: #{what}" if now > limit

      sleep(0.02)
    end
  end

  def self.now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # One daemon for all tests.
  def self.shared
    @shared ||= new.tap { |daemon| Minitest.after_run { daemon.close } }
  end

  attr_reader :lbd, :pid, :directory

  # token is the one of an operator, if the daemon wants one.
  def initialize(*flags, token: nil)
    @flags = flags
    @token = token
    @directory = Dir.mktmpdir("lbd")
    @socket = "#{@directory}/lbd.sock"
    @lbd = "unix:#{@socket}"
    start
  end

  def start
    @pid = spawn(BINARY, "serve", "--listen=#{@lbd}", "--data=#{@directory}/data", "--connect=none", *@flags,
                 err: ["#{@directory}/lbd.log", "a"])
    Daemon.until("lbd is ready") { ready? }
  end

  def stop
    Process.kill(:TERM, @pid)
    Process.wait(@pid)
    @pid = nil
  end

  def close
    stop if @pid
    FileUtils.remove_entry(@directory)
  end

  # Calls lbd without the client under test.
  def call(method, path, body = nil)
    socket = UNIXSocket.new(@socket)
    text = body && JSON.generate(body)
    socket.write("#{method} #{path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: #{text.to_s.bytesize}\r\n" \
                 "#{"Authorization: Bearer #{@token}\r\n" if @token}\r\n#{text}")
    head, content = socket.read.split("\r\n\r\n", 2)
    raise "#{method} #{path}: #{head} #{content}" unless head.match?(%r{\AHTTP/1.. 2})

    content.start_with?("{", "[") ? JSON.parse(content) : content
  ensure
    socket&.close
  end

  # Makes addresses the endpoints of a cluster; priorities has those of more priorities.
  def push(cluster, addresses, policy = nil, priorities: {})
    body = { endpoints: { 0 => addresses }.merge(priorities).map { |priority, each| locality(priority, each) } }
    body[:policy] = policy if policy
    call("PUT", "/v1/clusters/#{cluster}/endpoints?allow_empty=true", body)
  end

  def in_flight(cluster)
    call("GET", "/v1/clusters/#{cluster}?endpoints=false").dig("circuit_breaker", "in_flight")
  end

  # The requests of a cluster with an outcome that clients have reported.
  def reported(cluster, outcome)
    metric("lbd_reported_requests_total{cluster=\"#{cluster}\",outcome=\"#{outcome}\"}")
  end

  def metric(name)
    line = "#{name} "
    call("GET", "/metrics").lines.find { |text| text.start_with?(line) }.to_s.delete_prefix(line).to_i
  end

  private

  def locality(priority, addresses)
    endpoints = addresses.map do |address|
      host, _, port = address.rpartition(":")
      { endpoint: { address: { socket_address: { address: host, port_value: Integer(port) } } } }
    end
    { priority: priority, locality: { zone: "zone-#{priority}" }, lb_endpoints: endpoints }
  end

  def ready?
    raise "lbd ended: #{File.read("#{@directory}/lbd.log")}" if Process.wait(@pid, Process::WNOHANG)

    call("GET", "/metrics")
  rescue SystemCallError
    nil
  end
end
