# frozen_string_literal: true

require_relative "case"
require_relative "library"
require "lbd/faraday"
require "logger"

# The hooks and the logger.
class HooksTest < Case
  def setup
    super
    @got = Queue.new
    @log = StringIO.new
  end

  def got
    Array.new(@got.size) { @got.pop }
  end

  # The hooks note what they get, and fail.
  def hooks
    on_attempt = lambda do |a|
      choice = a.choice
      @got << [a.request.method.to_s.upcase, a.url.host, choice.cluster, choice.address, choice.attempt, a.outcome,
               a.status, a.error.class, a.duration.positive?]
      raise "of the test"
    end
    on_state = lambda do |state|
      @got << state
      raise NotImplementedError, "of the test"
    end
    { on_attempt: on_attempt, on_state: on_state, logger: Logger.new(@log) }
  end

  def test_get_tries_and_states
    own = Daemon.new
    dead, alive = refusing, upstream { |request| request.reply(404) }
    own.push("orders", [dead])
    client = client(own.lbd, mode: :pick, token: "secret", hosts: { "orders.lbd" => { hash: "header:User" } }, **hooks)
    send = -> { client.request("POST", "http://orders.lbd/?q=secret", "secret", { "User" => "secret" }, timeout: 2) }
    assert_raises(Errno::ECONNREFUSED) { send.call }
    own.push("orders", [alive.address])
    send.call
    client.request("GET", "http://orders.lbd/") { |_| nil }
    own.stop
    2.times do
      error = assert_raises(Lbd::Unavailable) { send.call }
      assert_match(%r{\Albd: cluster orders: lbd is unreachable: GET /v1/pick at #{own.lbd} \(the setting lbd\): Errno},
                   error.message)
      refute_match(/secret|hash/, error.message)
    end
    own.start
    send.call
    answered = ["POST", "orders.lbd", "orders", alive.address, 1, :success, 404, NilClass, true]
    assert_equal [["POST", "orders.lbd", "orders", dead, 1, :unreachable, nil, Errno::ECONNREFUSED, true], answered,
                  ["GET", *answered.drop(1)], :unreachable, :recovered, answered], got
    logged = { "of the test" => 6, "WARN.*unreachable" => 1, "INFO.*recovered" => 1, "DEBUG.*try 1 at" => 4 }
    assert_equal(logged, logged.to_h { |text, _| [text, @log.string.scan(/#{text}/).size] })
    refute_includes @log.string, "secret"
  ensure
    own&.close
  end

  def test_a_request_that_is_given_up_is_cancelled
    upstreams(nil, nil)
    Library::MODES.each do |mode|
      client = client(mode: mode, **hooks)
      broken = Object.new.tap { |io| def io.read(*) = raise(Errno::EIO) }
      assert_raises(Errno::EIO) { client.request("PUT", @url, broken) }
      assert_equal([[:cancelled, nil, Errno::EIO]], got.map { |each| each[5..7] }, mode)
    end
  end

  def test_get_tries_of_faraday
    good, bad = upstreams(nil, Case.status(503))
    client = client(**hooks)
    [->(f) { f.adapter :lbd, client }, ->(f) { f.request :lbd, client and f.adapter :net_http }].each do |build|
      connection = Faraday.new(&build)
      connection.get(@url) while bad.seen.empty?
      tries = got.last(2)
      assert_equal [["GET", "#{@cluster}.lbd", @cluster, bad.address, 1, :error, 503, NilClass, true],
                    ["GET", "#{@cluster}.lbd", @cluster, good.address, 2, :success, 200, NilClass, true]], tries
    end
  end

  def test_stale_is_a_state_of_the_mode_batch
    own = Daemon.new
    own.push("orders", [upstream.address])
    client = client(own.lbd, max_age: 0.1, stale_for: 0.2, **hooks)
    code = lambda do
      client.request("GET", "http://orders.lbd/").code
    rescue Lbd::Unavailable
      nil
    end
    code.call
    own.stop
    eventually("the batch is stale") { code.call.nil? }
    own.start
    own.push("orders", [upstream.address])
    eventually("lbd is used again") { code.call }
    assert_equal(%i[unreachable stale recovered], got.grep(Symbol))
  ensure
    own&.close
  end

  def test_errors_say_how_lbd_was_found
    message = -> { assert_raises(Lbd::Unavailable) { client(nil, mode: :pick).request("GET", @url) }.message }
    ENV["LBD"] = "unix:/nowhere"
    assert_match(%r{at unix:/nowhere \(environment LBD\): Errno::ENOENT}, message.call)
    ENV.delete("LBD")
    Lbd::Api.stub(:default_address, "http://127.0.0.1:1") do
      assert_match(%r{at http://127.0.0.1:1 \(default; set LBD\): Errno::ECONNREFUSED}, message.call)
    end
    error = assert_raises(ArgumentError) { client("http://user:secret@lbd:8080") }
    refute_match(/secret/, error.message)
  ensure
    ENV.delete("LBD")
  end

  def test_spans
    begin
      require "opentelemetry/sdk"
    rescue LoadError
      skip "the gem opentelemetry-sdk is not installed"
    end
    require_relative "../examples/opentelemetry"
    upstreams(Case.status(503), Case.status(503))
    exporter = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
    provider = OpenTelemetry::SDK::Trace::TracerProvider.new
    provider.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(exporter))
    tracer = provider.tracer("test")
    client = client(on_attempt: Spans.new(tracer))
    parent = tracer.in_span("parent") { |span| span.tap { client.request("GET", "#{@url}/items?key=secret") } }
    *spans, _parent = exporter.finished_spans
    assert_equal 2, spans.size
    spans.each_with_index do |span, i|
      attributes = span.attributes.reject { |name, _| name.start_with?("network.peer.") }
      expected = { "http.request.method" => "GET", "server.address" => "#{@cluster}.lbd", "server.port" => 80,
                   "http.response.status_code" => 503, "error.type" => "503", "lbd.cluster" => @cluster }
      expected["http.request.resend_count"] = 1 if i == 1
      assert_equal expected, attributes
      assert_equal ["GET", :client, parent.context.span_id], [span.name, span.kind, span.parent_span_id]
      assert_equal OpenTelemetry::Trace::Status::ERROR, span.status.code
      assert_operator span.start_timestamp, :<, span.end_timestamp
    end
    assert_equal 2, spans.map { |span| span.attributes["network.peer.port"] }.uniq.size
  end
end
