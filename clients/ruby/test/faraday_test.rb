# frozen_string_literal: true

require_relative "case"
require_relative "library"
require_relative "certificate"
require "lbd/faraday"

# What Faraday is asked to send, and what it answers.
module FaradayLibrary
  include Library

  def timeouts
    [Faraday::TimeoutError]
  end

  def sender(client, &block)
    connection = connection(client, &block)
    lambda do |method, url, body = nil, timeout = 10, ask = nil|
      response = connection.run_request(method.downcase.to_sym, url, body, Case::TEXT) do |request|
        request.options.timeout = timeout
        request.options.context = { lbd: ask } if ask
      end
      assert_equal url.chomp("/"), response.env.url.to_s.chomp("/")
      [response.status, response.body]
    end
  end

  def test_raises_errors_of_faraday
    upstreams(Case::RESET)
    send = sender(client)
    assert_raises(Faraday::ConnectionFailed) { send.call("GET", @url) }
    error = assert_raises(Faraday::Error) { send.call("GET", "http://#{@cluster}-other.lbd/") }
    assert_kind_of Lbd::UnknownCluster, error
    assert_equal "unknown_cluster", error.code
    assert_raises(Faraday::ConnectionFailed) { sender(client("http://127.0.0.1:1")).call("GET", @url) }
  end

  def test_retries_after_connect_timeout
    (good,) = upstreams(nil)
    full = full_server
    daemon.push(@cluster, [good.address, full])
    send = sender(client(connect_timeout: 0.1))
    20.times { assert_equal [200, good.address], send.call("GET", @url) }
    daemon.push(@cluster, [full])
    assert_raises(Faraday::ConnectionFailed) { sender(client(connect_timeout: 0.1)).call("GET", @url) }
  end

  def test_retries_what_a_middleware_rejects
    good, = upstreams(nil, Case.status(503))
    send = sender(client) { |f| f.response(:raise_error) }
    20.times { assert_equal [200, good.address], send.call("GET", @url) }
    upstreams(Case.status(503), Case.status(503))
    send = sender(client) { |f| f.response(:raise_error) }
    assert_raises(Faraday::ServerError) { send.call("GET", @url) }
  end

  def test_checks_certificates
    authority, context = TestCertificate.of("#{@cluster}.lbd")
    secure = Upstream.new(context)
    @closing << secure
    daemon.push(@cluster, [secure.address])
    url = @url.sub("http:", "https:")
    connection = connection(client)
    assert_raises(Faraday::SSLError) { connection.get(url) }
    [{ ca_file: authority.path }, { verify: false }].each do |ssl|
      connection = connection(client)
      ssl.each { |name, value| connection.ssl[name] = value }
      assert_equal 200, connection.get(url).status
    end
    assert_raises(Faraday::SSLError) { connection(client).get(url) }
    TestCertificate.trust(authority)
    assert_equal 200, connection(client).get(url).status
  end

  def test_streams
    upstreams(->(request) { request.reply(200, "x" * 100_000) })
    sizes = []
    connection(client).get(@url) { |request| request.options.on_data = ->(_, size, *) { sizes << size } }
    assert_equal 100_000, sizes.last
    assert_operator sizes.size, :>, 1
  end
end

# The tests with the adapter.
class FaradayAdapterTest < Case
  include FaradayLibrary

  def connection(client)
    Faraday.new do |f|
      yield f if block_given?
      f.adapter :lbd, client
    end
  end

  def test_uses_connections_again
    (upstream,) = upstreams(nil)
    send = sender(client)
    5.times { send.call("GET", @url) }
    assert_equal 1, upstream.connections.size
  end

  def test_rejects_ssl_options_that_it_would_ignore
    upstreams(nil)
    connection = Faraday.new(ssl: { certificate: "x" }) { |f| f.adapter :lbd, client }
    assert_raises(ArgumentError) { connection.get(@url.sub("http:", "https:")) }
    assert_equal 200, connection.get(@url).status
  end
end

# The tests with the middleware.
class FaradayMiddlewareTest < Case
  include FaradayLibrary

  def connection(client, adapter = :net_http)
    Faraday.new do |f|
      f.request :lbd, client
      yield f if block_given?
      f.adapter adapter
    end
  end

  # Its errors are neither those of Faraday nor those of Net::HTTP.
  def test_retries_with_another_adapter
    skip "Faraday 2 has the adapter in a gem of its own" if Faraday::VERSION.to_i > 1
    begin
      require "net/http/persistent"
    rescue LoadError
      skip "net-http-persistent is not installed"
    end
    good, = upstreams(nil, Case::RESET)
    connection = connection(client, :net_http_persistent)
    20.times { assert_equal good.address, connection.get(@url).body }
    assert_equal 1, good.connections.size
    daemon.push(@cluster, [good.address.sub("127.0.0.1", "0.0.0.0")])
    connection = connection(client, :net_http_persistent)
    assert_empty(HttpProxy.used { assert_equal good.address, connection.get(@url).body })
  end

  def test_does_not_look_at_what_the_caller_rescues
    upstreams(->(_) { sleep })
    client = client()
    assert_raises(Faraday::TimeoutError) do
      raise Errno::EMFILE
    rescue Errno::EMFILE
      connection(client).get(@url) { |request| request.options.timeout = 0.2 }
    end
    client.close
    assert_equal 1, daemon.reported(@cluster, "error")
  end

  # The adapter knows no length of an IO.
  def body
    "body"
  end

  def test_rejects_https_if_a_middleware_would_not_see_it
    connection = connection(client) { |f| f.response(:raise_error) }
    error = assert_raises(ArgumentError) { connection.get(@url.sub("http:", "https:")) }
    assert_match(/just before the adapter/, error.message)
  end

  def test_other_hosts_have_the_proxy_of_the_environment
    client = client()
    urls = HttpProxy.used { assert_equal "proxy", connection(client).get("http://0.0.0.0:1/x").body }
    assert_equal ["http://0.0.0.0:1/x"], urls
  end
end
