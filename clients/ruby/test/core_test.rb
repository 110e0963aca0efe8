# frozen_string_literal: true

require_relative "case"
require_relative "certificate"
require_relative "library"

# Requests of the client itself, and of a Net::HTTP through it.
class CoreTest < Case
  include Library

  def timeouts
    [Net::ReadTimeout]
  end

  def sender(client)
    lambda do |method, url, body = nil, timeout = 10, ask = nil|
      response = client.request(method, url, body, TEXT, timeout: timeout, ask: ask)
      [Integer(response.code), response.body]
    end
  end

  def test_is_in_flight_until_the_body_is_read
    (upstream,) = upstreams(nil)
    client = client(mode: :lease)
    client.request("GET", @url) { assert_equal 1, daemon.in_flight(@cluster) }
    eventually("the lease has ended") { daemon.in_flight(@cluster).zero? }
    assert_equal(:given_up, client.request("GET", @url) { break :given_up })
    eventually("the lease of a request that was given up has ended") { daemon.in_flight(@cluster).zero? }
    eventually("so has its connection") { upstream.idle? }
  end

  def test_reads_the_body_in_parts
    upstreams(->(request) { request.reply(200, "x" * 100_000) })
    size = 0
    client.request("GET", @url) { |response| response.read_body { |part| size += part.bytesize } }
    assert_equal 100_000, size
  end

  def test_uses_connections_again
    (upstream,) = upstreams(nil)
    send = sender(client)
    %w[GET HEAD POST GET].each { |method| assert_equal 200, send.call(method, @url).first }
    assert_equal 1, upstream.connections.size
  end

  def test_closes_connections_that_were_idle_for_long
    one = upstream
    pool = Lbd::Pool.new
    open = -> { Lbd::Connection.open(one.address, Lbd::Deadline.new(10)) }
    connections = Array.new(Lbd::Pool::IDLE_ALL + 1) { |i| pool.use(i, open) { |connection| connection } }
    assert_equal 1, connections.count(&:closed?)
    later = Lbd::Clock.now + Lbd::Pool::IDLE_TIME + 1
    last = Lbd::Clock.stub(:now, -> { later }) { pool.use(-1, open) { |connection| connection } }
    assert connections.all?(&:closed?)
    refute last.closed?
    pool.close
    assert last.closed?
  end

  def test_repeats_a_request_whose_connection_had_ended
    (upstream,) = upstreams(lambda do |request|
      request.reply
      :close
    end)
    send = sender(client(retries: 0))
    20.times { assert_equal 200, send.call("GET", @url).first }
    assert_equal 20, upstream.seen.size
  end

  def test_does_not_send_a_post_on_a_connection_that_has_ended
    (upstream,) = upstreams(lambda do |request|
      request.reply
      :close
    end)
    send = sender(client)
    10.times do
      assert_equal 200, send.call("POST", @url, "x").first
      eventually("the connection has ended") { upstream.idle? }
    end
  end

  def test_does_not_use_what_comes_on_an_idle_connection
    upstreams(lambda do |request|
      surplus = "HTTP/1.1 408 Status\r\nContent-Length: 0\r\n\r\n"
      request.reply(200, "ok#{surplus}", "Content-Length" => 2)
    end)
    send = sender(client)
    20.times { assert_equal 200, send.call("GET", @url).first }
  end

  def test_rejects_half_a_body
    upstreams(lambda do |request|
      request.reply(200, "half", "Content-Length" => 8)
      :close
    end)
    assert_raises(EOFError) { client.request("GET", @url) }
  end

  def test_ends_at_the_deadline_however_slowly_bytes_come
    upstreams(lambda do |request|
      request.reply(200, ".", "Content-Length" => 1000)
      loop do
        request.socket.write(".")
        sleep(0.02)
      end
    end)
    assert_raises(Net::ReadTimeout) { client.request("GET", @url, timeout: 2) }
  end

  def test_ends_at_the_deadline_however_fast_bytes_come
    part = "10000\r\n#{"x" * 0x10000}\r\n"
    upstreams(lambda do |request|
      request.reply(200, "", "Content-Length" => nil, "Transfer-Encoding" => "chunked")
      loop { request.socket.write(part) }
    end)
    assert_raises(Net::ReadTimeout) do
      client.request("GET", @url, timeout: 2) { |response| response.read_body { |data| data } }
    end
  end

  def test_retries_after_open_timeout
    (good,) = upstreams(nil)
    full = full_server
    daemon.push(@cluster, [good.address, full])
    send = client
    20.times { assert_equal good.address, send.request("GET", @url, open_timeout: 0.1).body }
    assert_raises(Net::OpenTimeout) { send.request("GET", "http://#{full}/", timeout: 0.1) }
  end

  def test_retries_after_connect_timeout
    (good,) = upstreams(nil)
    full = full_server
    daemon.push(@cluster, [good.address, full])
    client = client(connect_timeout: 0.1)
    20.times { assert_equal good.address, client.request("GET", @url, open_timeout: 60).body }
    daemon.push(@cluster, [full])
    other = client(connect_timeout: 0.1)
    assert_raises(Lbd::ConnectTimeout) { other.request("GET", @url) }
    refute_kind_of Lbd::ConnectTimeout, (assert_raises(Net::OpenTimeout) { other.request("GET", @url, timeout: 0.05) })
    other.close
    %w[error cancelled].each { |outcome| assert_equal 0, daemon.reported(@cluster, outcome), "nothing was sent" }
  end

  def test_repeats_a_post_of_which_nothing_was_sent
    (upstream,) = upstreams(nil)
    client = client()
    client.request("GET", @url)
    pool = client.instance_variable_get(:@upstreams).instance_variable_get(:@pool)
    connection = pool.instance_variable_get(:@idle).values.flatten.first
    connection.define_singleton_method(:usable?) { true }
    connection.instance_variable_get(:@stream).to_io.shutdown(Socket::SHUT_WR)
    assert_equal "200", client.request("POST", @url, StringIO.new("x"), TEXT).code
    assert_equal(%w[GET POST], upstream.seen.map(&:first))
  end

  def test_retries_a_post_with_a_key
    good, = upstreams(nil, Case::RESET)
    client = client()
    8.times do
      assert_equal good.address, client.request("POST", @url, "x", TEXT.merge("Idempotency-Key" => "1")).body
      assert_equal good.address, client.request("POST", @url, "x", TEXT, idempotent: true).body
    end
  end

  def test_sends_an_io_once
    one, two = upstreams(Case::RESET, Case::RESET)
    assert_raises(EOFError) { client.request("PUT", @url, StringIO.new("body"), TEXT) }
    assert_equal ["body"], (one.seen + two.seen).map(&:last)
  end

  def test_does_not_blame_an_endpoint_for_errors_of_the_caller
    upstreams(nil)
    client = client()
    broken = Object.new.tap { |io| def io.read(*) = raise(Errno::EIO) }
    assert_raises(Errno::EIO) { client.request("PUT", @url, broken, TEXT) }
    assert_raises(Errno::ECONNREFUSED) { client.request("GET", @url) { raise Errno::ECONNREFUSED } }
    client.close
    assert_equal [1, 1, 0], outcomes
  end

  def test_counts_what_is_interrupted_as_cancelled
    started = Queue.new
    upstreams(lambda do |_|
      started << true
      sleep
    end)
    client = client(mode: :lease)
    thread = Thread.new { Timeout.timeout(10) { client.request("GET", @url) } }
    started.pop
    assert_equal 1, daemon.in_flight(@cluster)
    thread.kill
    eventually("the lease has ended") { daemon.in_flight(@cluster).zero? }
  end

  def test_checks_certificates
    authority, context = TestCertificate.of("#{@cluster}.lbd")
    names = []
    context.servername_cb = ->((_, name)) { (names << name) && nil }
    secure = Upstream.new(context)
    @closing << secure
    daemon.push(@cluster, [secure.address])
    url = @url.sub("http:", "https:")
    assert_raises(OpenSSL::SSL::SSLError) { client.request("GET", url) }
    TestCertificate.trust(authority)
    assert_equal secure.address, client.request("GET", url).body
    assert_includes names, "#{@cluster}.lbd"
    other = client(hosts: { "other.test" => @cluster })
    assert_raises(OpenSSL::SSL::SSLError) { other.request("GET", "https://other.test/") }
  end

  def test_survives_a_restart_of_lbd
    own = Daemon.new
    first, second = upstream, upstream
    own.push("orders", [first.address])
    client = client(own.lbd, max_age: 0.2)
    assert_equal first.address, client.request("GET", "http://orders.lbd").body
    own.stop
    assert_equal first.address, client.request("GET", "http://orders.lbd").body
    own.start
    own.push("orders", [second.address])
    eventually("the new endpoint is used") { client.request("GET", "http://orders.lbd").body == second.address }
  ensure
    own&.close
  end

  private

  def outcomes
    %w[success cancelled error].map { |outcome| daemon.reported(@cluster, outcome) }
  end
end

# The tests with Client#net_http.
class NetHTTPTest < Case
  include Library

  def timeouts
    [Net::ReadTimeout]
  end

  def sender(client)
    lambda do |method, url, body = nil, timeout = 10, ask = nil|
      uri = URI(url)
      http = client.net_http(uri.hostname, uri.port)
      http.read_timeout = timeout
      http.ask = ask
      response = http.start { |started| started.send_request(method, uri.request_uri, body, TEXT) }
      [Integer(response.code), response.body]
    end
  end

  # send_request takes no IO.
  def body
    "body"
  end

  def test_has_the_methods_of_net_http
    (upstream,) = upstreams(nil)
    http = client.net_http("#{@cluster}.lbd")
    assert_equal upstream.address, http.get("/a").body
    parts = []
    http.get("/b") { |part| parts << part }
    assert_equal [upstream.address], parts
    assert_equal "200", http.post("/c", "body", TEXT).code
    assert_equal "200", http.request(Net::HTTP::Put.new("/d", TEXT), "body").code
    assert_equal(%w[/a /b /c /d], upstream.seen.map { |_, path| path })
  end
end
