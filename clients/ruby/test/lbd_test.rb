# frozen_string_literal: true

require "digest"
require_relative "case"
require_relative "certificate"
require_relative "library"

# The client and an lbd that is slow, broken, secured, or gone.
class LbdTest < Case
  # lbd behind a server that breaks its answers while fault is set.
  def broken_lbd
    @fault = nil
    front = upstream do |request|
      case @fault
      when nil then forward(request)
      when :hang then sleep
      when :end then :close
      else @fault.call(request)
      end
    end
    "http://#{front.address}"
  end

  def forward(request)
    answer = daemon.call(request.verb, request.path, request.body.empty? ? nil : JSON.parse(request.body))
    request.reply(200, JSON.generate(answer), "Content-Type" => "application/json")
  end

  FAULTS = {
    half: lambda do |request|
      request.reply(200, '{"generation":1,"picks":[', "Content-Length" => 1000)
      :close
    end,
    half_head: lambda do |request|
      request.socket.write("HTTP/1.1 200 OK\r\nContent-")
      :close
    end,
    no_json: ->(request) { request.reply(200, "<html>") },
    no_object: ->(request) { request.reply(200, "[1]") },
    no_batch: ->(request) { request.reply(200, '{"picks":7}') },
    gateway: ->(request) { request.reply(502, "<html>") },
    nonsense: ->(request) { request.socket.write("\x00\xff nonsense\r\n\r\n") && :close },
    end: :end
  }.freeze

  FAULTS.each do |name, fault|
    define_method(:"test_survives_#{name}") do
      (upstream,) = upstreams(nil)
      client = client(broken_lbd, max_age: 0.05)
      @fault = fault
      error = assert_raises(Lbd::Unavailable) { client.request("GET", @url) }
      assert_equal "", error.code
      @fault = nil
      eventually("the client has a batch") { answer(client) == upstream.address }
      @fault = fault
      other, = upstreams(nil)
      20.times { assert_equal upstream.address, answer(client) }
      @fault = nil
      eventually("the client has a new batch") { answer(client) == other.address }
    end
  end

  def test_keeps_the_deadline_while_lbd_hangs
    upstreams(nil)
    lbd = broken_lbd
    @fault = :hang
    Library::MODES.each do |mode|
      client = client(lbd, mode: mode)
      began = Daemon.now
      assert_raises(Lbd::Unavailable) { client.request("GET", @url, timeout: 0.2) }
      assert_operator Daemon.now - began, :<, 5.5, "not the 5 s of a pick, and 1 s more"
    end
  end

  def test_asks_for_no_other_lease_after_the_deadline
    upstreams(Case.status(503))
    paths = []
    front = upstream do |request|
      paths << request.path[/[^?]*/]
      request.path == "/v1/leases/done" ? sleep : forward(request)
    end
    response = client("http://#{front.address}", mode: :lease).request("GET", @url, timeout: 2)
    assert_equal "503", response.code
    assert_equal ["/v1/pick", "/v1/leases/done"], paths.first(2)
    assert_equal 1, paths.count("/v1/pick")
  end

  def test_uses_a_batch_until_it_is_stale
    (upstream,) = upstreams(nil)
    client = client(broken_lbd, max_age: 0.05, stale_for: 2, fallback: (other = self.upstream).address)
    assert_equal upstream.address, answer(client)
    @fault = :end
    assert_equal upstream.address, answer(client)
    eventually("the batch is stale") { answer(client) == other.address }
    @fault = nil
    eventually("the client has a new batch") { answer(client) == upstream.address }
  end

  def test_does_not_use_the_fallback_if_lbd_has_answered
    daemon.push(@cluster, [])
    other = upstream
    Library::MODES.each do |mode|
      error = assert_raises(Lbd::Unavailable) do
        client(mode: mode, fallback: other.address).request("GET", @url, timeout: 0.2)
      end
      assert_equal "no_ready_endpoint", error.code
    end
  end

  def test_fails_after_close
    upstreams(nil)
    client = client()
    answer(client)
    2.times { client.close }
    assert_raises(Lbd::Unavailable) { client.request("GET", @url) }
  end

  def test_reports_later_what_it_cannot_report
    upstreams(nil)
    paths = []
    broken = lambda do |request|
      paths << request.path
      :close
    end
    client = client(broken_lbd, report_interval: 0.05)
    answer(client)
    @fault = broken
    5.times { answer(client) }
    eventually("a report has failed") { paths.include?("/v1/reports") }
    @fault = nil
    eventually("the requests are reported") { daemon.reported(@cluster, "success") == 6 }
  end

  # An lbd that picks an address, unless it is excluded or the block answers. Notes each call: its path, its parameters
  # as text, and its body.
  def lbd_of(address)
    @calls = Queue.new
    front = upstream do |request|
      path, parameters = request.path.split("?")
      @calls << [path, parameters.to_s, request.body]
      next request.reply(*yield(parameters.to_s)) if block_given? && yield(parameters.to_s)
      next request.reply(503, '{"code":"all_excluded"}') if parameters.to_s.include?("exclude")

      sleep 0.5 if path.start_with?("/v1/clusters")
      pick = { address: address }
      answer = parameters.to_s.include?("n=") ? { generation: 1, picks: [pick] } : pick.merge(lease: { id: "one" })
      request.reply(200, JSON.generate(answer))
    end
    "http://#{front.address}"
  end

  # The next call of a path.
  def call_of(path)
    loop do
      called, *rest = Timeout.timeout(Daemon::DEADLINE) { @calls.pop }
      return rest if called == path
    end
  end

  def followed(prefix)
    Thread.list.count { |thread| thread.name.to_s.start_with?("lbd #{prefix}") }
  end

  def test_names_that_lbd_does_not_know_cost_nothing_for_long
    upstreams(nil)
    client = client()
    1100.times { |i| assert_raises(Lbd::UnknownCluster) { client.request("GET", "http://later-#{i}.lbd/") } }
    eventually("no cluster is followed") { followed("later-").zero? }
    assert_equal "200", client.request("GET", @url).code
    daemon.push("later-1099", [upstream.address])
    eventually("the cluster is known") do
      client.request("GET", "http://later-1099.lbd/")
    rescue Lbd::UnknownCluster
      nil
    end
  end

  def test_without_batches_names_that_lbd_does_not_know_are_forgotten_first
    client = client(mode: :pick)
    address = upstream.address
    first, second = %w[first second].map do |name|
      daemon.push(name, [address])
      client.request("GET", "http://#{name}.lbd/")
      client.cluster(name)
    end
    2000.times { |i| client.cluster("name-#{i}") }
    assert_same first, client.cluster("first")
    999.times { |i| client.cluster("known-#{i}").picked = Lbd::Clock.now }
    assert_same second, client.cluster("second")
    refute_same first, client.cluster("first")
  end

  def test_names_that_are_forgotten_are_not_followed
    client = client("http://127.0.0.1:1")
    1010.times do |i|
      error = assert_raises(Lbd::Unavailable) { client.request("GET", "http://name-#{i}.lbd/") }
      assert_match(/unreachable/, error.message)
    end
    eventually("10 clusters are followed") { followed("name-") == 10 }
  end

  REJECTIONS = {
    "unknown_cluster" => [404, Lbd::UnknownCluster], "unknown_target" => [404, Lbd::UnknownCluster],
    "invalid_argument" => [400, Lbd::Unavailable], "unauthenticated" => [401, Lbd::PermissionDenied],
    "permission_denied" => [403, Lbd::PermissionDenied]
  }.freeze

  def test_remembers_that_lbd_rejects_a_name_or_the_token
    REJECTIONS.each do |code, (status, kind)|
      { 600.0 => 1, 0.0 => 3 }.each do |age, calls|
        with(:REFUSED_AGE, age) do
          client = client(lbd_of("") { [status, JSON.generate(code: code)] })
          3.times do
            assert_raises(kind) { client.request("GET", @url) }
            eventually("it is not followed") { followed(@cluster).zero? }
          end
          assert_equal calls, @calls.size, code
        end
      end
    end
  end

  def test_a_name_that_lbd_has_rejected_may_be_known_later
    late = Queue.new
    with(:REFUSED_AGE, 0.0) do
      address = lbd_of(upstream.address) do
        next [404, '{"code":"unknown_cluster"}'] if @calls.size == 1

        late.pop
        nil
      end
      client = client(address)
      assert_raises(Lbd::UnknownCluster) { client.request("GET", @url) }
      eventually("it is not followed") { followed(@cluster).zero? }
      assert_raises(Lbd::Unavailable) { client.request("GET", @url, timeout: 0.2) }
      late.close
      eventually("it is known") do
        client.request("GET", @url)
      rescue Lbd::Unavailable
        nil
      end
    end
  end

  def test_tells_lbd_at_once_and_asks_again_for_what_is_set_aside
    address = refusing
    client = client(lbd_of(address), mode: :pick, report_interval: 600)
    [[false, true], [true, false, true]].each do |excluded|
      assert_raises(Errno::ECONNREFUSED) { client.request("POST", @url, "x", TEXT, timeout: 0.1) }
      assert_equal(excluded, excluded.map { call_of("/v1/pick").first.include?("exclude") })
      report = JSON.parse(call_of("/v1/reports").last)
      refute report.key?("interval")
      endpoint = { "address" => address, "connect_failures" => 1 }
      assert_equal [{ "cluster" => @cluster, "endpoints" => [endpoint] }], report["clusters"]
    end
  end

  def test_close_tells_lbd_of_connects_that_failed
    client = client(lbd_of(refusing), report_interval: 600)
    assert_raises(Errno::ECONNREFUSED) { client.request("POST", @url, "x", TEXT) }
    client.close
    reports = Array.new(@calls.size) { @calls.pop }.select { |path, *| path == "/v1/reports" }
    endpoints = reports.flat_map { |*, body| JSON.parse(body)["clusters"][0]["endpoints"] }
    assert_equal(1, endpoints.sum { |endpoint| endpoint["connect_failures"].to_i })
    assert_equal(0, endpoints.sum { |endpoint| endpoint["requests"].to_i })
  end

  def test_connects_with_more_time_if_there_is_no_other_endpoint
    lbd = lbd_of(upstream.address)
    Library::MODES.each do |mode|
      client = client(lbd, mode: mode, retries: 0)
      client.send(:add, @cluster).connects.instance_variable_set(:@limit, 0.0)
      assert_equal "200", client.request("POST", @url, "x", TEXT).code, mode
    end
  end

  def test_asks_for_the_picks_of_two_seconds
    limit = lambda do |parameters|
      [400, '{"code":"invalid_argument"}'] if parameters[/\bn=(\d+)/, 1].to_i > 100
    end
    client = client(lbd_of(upstream.address, &limit), max_age: 0.5)
    ask = -> { call_of("/v1/pick").first[/\bn=(\d+)/, 1].to_i }
    take = -> { client.call(@cluster, Lbd::Deadline.new(10), true).send(:first) }
    take.call
    assert_equal [100, 20], [ask.call, ask.call]
    n = 20
    while n == 20 # a batch that has just been replaced does not count
      3000.times { take.call }
      n = ask.call
    end
    assert_operator n, :>, 100
    assert_equal 100, ask.call
  end

  def test_a_busy_process_may_repeat_more
    client = client(lbd_of(upstream.address), max_age: 0.5)
    take = -> { client.call(@cluster, Lbd::Deadline.new(10), true).send(:first) }
    take.call
    budget = client.send(:add, @cluster).budget
    eventually("the budget fits the batch") do
      1000.times { take.call }
      budget.instance_variable_get(:@max) > 100
    end
  end

  def test_reports_errors_early
    upstreams(->(request) { request.reply(500) })
    client = client(report_interval: 300)
    5.times { assert_equal "500", client.request("GET", @url).code }
    eventually("the errors are reported") { daemon.reported(@cluster, "error") == 5 }
  end

  # lbd hears from the request that finds it that the only endpoint of a priority is gone.
  def test_waits_for_another_priority
    own = Daemon.new("--connect=tcp")
    Library::MODES.each do |mode|
      first = upstream { |request| request.reply(200, request.upstream.address, "Connection" => "close") }
      second = upstream
      own.push(mode, [first.address], priorities: { 1 => [second.address] })
      client = client(own.lbd, mode: mode)
      assert_equal first.address, client.request("POST", "http://#{mode}.lbd/", "x", TEXT).body
      first.close
      assert_equal second.address, client.request("POST", "http://#{mode}.lbd/", "x", TEXT).body, mode
    end
  ensure
    own&.close
  end

  # lbd does not know yet that the other one can be connected to.
  def test_picks_what_is_set_aside_if_nothing_else_is_left
    other, broken = upstreams(nil, Case.status(503))
    %i[pick lease].each do |mode|
      client = client(mode: mode)
      client.send(:add, @cluster).asides.failed(other.address, false, 2)
      assert_equal "200", client.request("GET", @url).code, mode
      assert_equal 1, broken.seen.size, mode
    end
  end

  def test_each_client_is_a_reporter
    upstreams(nil)
    reporters = Queue.new
    front = upstream do |request|
      reporters << JSON.parse(request.body)["reporter"] if request.path == "/v1/reports"
      forward(request)
    end
    clients = Array.new(2) { client("http://#{front.address}") }
    clients.each do |client|
      answer(client)
      client.close
    end
    names = [reporters.pop, reporters.pop]
    assert_equal 2, names.uniq.size
    names.each { |name| assert_match(%r{\A#{Regexp.escape(Socket.gethostname)}/#{Process.pid}/\h{8}\z}, name) }
  end

  def test_only_answers_of_lbd_are_rejections
    good, = upstreams(nil)
    [404, 503].each do |status|
      front = upstream { |request| request.reply(status, "{}") }
      assert_equal good.address, answer(client("http://#{front.address}", fallback: good.address)), status
    end
    front = upstream { |request| request.reply(429, "") }
    client = client("http://#{front.address}", fallback: good.address)
    assert_raises(Lbd::Unavailable) { client.request("GET", @url) }
  end

  def test_uses_a_batch_that_lbd_has_confirmed
    (upstream,) = upstreams(nil)
    client = client(max_age: 30, stale_for: 0.05)
    answer(client)
    sleep(0.1) # older than stale_for
    assert_equal upstream.address, answer(client)
  end

  def test_does_not_flood_lbd_if_the_cluster_always_changes
    batches = generation = 0
    front = upstream do |request|
      batches += 1 if request.path.start_with?("/v1/pick")
      request.reply(200, JSON.generate(generation: generation += 1, picks: [{ address: request.upstream.address }]))
    end
    began = Daemon.now
    client = client("http://#{front.address}")
    client.request("GET", @url)
    eventually("the batch is replaced") { batches > 3 }
    assert_operator batches, :<, 2 + ((Daemon.now - began) / 0.1)
  end

  def test_does_not_wait_for_long_for_an_lbd_that_hangs
    front = upstream do |request|
      sleep unless request.path.start_with?("/v1/pick")
      request.reply(200, JSON.generate(generation: 1, picks: [{ address: request.upstream.address }]))
    end
    deadlines = []
    api = Lbd::Api.new("http://#{front.address}", nil, nil, nil)
    api.define_singleton_method(:call) do |method, path, **options|
      deadlines << options[:deadline].left
      super(method, path, **options)
    end
    cluster = Lbd::Cluster.new("orders", api, max_age: 300, stale_for: 600, max_tokens: 100)
    cluster.take(Lbd::Deadline.new(10))
    eventually("it follows the cluster") { deadlines.size == 2 }
    assert_operator deadlines.last, :<=, 31
  ensure
    cluster&.close
  end

  def test_sends_a_request_that_is_longer_than_a_lease
    upstreams(nil)
    assert_equal "200", client(mode: :lease).request("GET", @url, timeout: 3600).code
    assert_equal "200", client(mode: :lease, ttl: 3600).request("GET", @url, timeout: nil).code
  end

  def test_renews_a_short_lease_in_time
    times = []
    front = upstream do |request|
      times << Daemon.now
      request.reply(200, "{}")
    end
    sender = client("http://#{front.address}", mode: :lease).sender
    sender.start
    sender.hold(Lbd::Lease.new("x", 0.1, Lbd::Deadline.new(nil))) { nil }
    eventually("it is renewed again and again") { times.size > 10 }
    assert_operator times.each_cons(2).map { |before, after| after - before }.min, :<, 0.3
  end

  def test_ends_the_lease_of_a_body_that_was_given_up_in_a_fiber
    upstreams(->(request) { request.reply(200, "x" * 1_000_000) })
    client = client(mode: :lease, report_interval: 60)
    parts = Enumerator.new do |yielder|
      client.request("GET", @url, timeout: 1) { |response| response.read_body { |part| yielder << part } }
    end
    parts.next
    assert_equal 1, daemon.in_flight(@cluster)
    eventually("the lease has ended") { daemon.in_flight(@cluster).zero? }
    line = "lbd_leases_finished_total{cluster=\"#{@cluster}\",outcome=\"cancelled\"} 1\n"
    assert_includes daemon.call("GET", "/metrics").lines, line
  end

  def test_keeps_a_lease_that_cannot_be_renewed_now
    ended = Queue.new
    front = upstream do |request|
      ended << request.body if request.path == "/v1/leases/done"
      request.reply(503, '{"code":"internal"}')
    end
    sender = client("http://#{front.address}", mode: :lease).sender
    lease = Lbd::Lease.new("x", 0.1, Lbd::Deadline.new(nil))
    sender.start
    sender.hold(lease) { nil }
    eventually("it was tried") { front.requests.size > 1 }
    sender.end(lease, :success)
    assert_equal [{ "id" => "x", "outcome" => "success" }], JSON.parse(ended.pop)["leases"]
  end

  def test_tries_a_renewal_again
    front = upstream { |request| request.reply(503, '{"code":"internal"}') }
    ["http://#{front.address}", "unix:/nowhere"].each do |lbd|
      lease = Lbd::Lease.new("x", 3600, Lbd::Deadline.new(nil))
      client(lbd, mode: :lease).sender.send(:renew, lease)
      assert_operator lease.renew_at - Lbd::Clock.now, :<=, 1, lbd
    end
  end

  # An lbd that answers no call about the lease "slow" until one about another lease has come. Returns what was
  # answered.
  def slow_lbd
    others, answered = { renewal: Queue.new, end: Queue.new }, []
    front = upstream do |request|
      kind = request.path.include?("/renew?") ? :renewal : :end
      if (request.path + request.body).match?(%r{"slow"|/slow/})
        others[kind].pop
        answered << kind unless request.socket.wait_readable(0) # the caller has given it up
      else
        others[kind] << true
      end
      request.reply(200, "{}")
    end
    [client("http://#{front.address}", mode: :lease, report_interval: 60).sender, answered]
  end

  def test_slow_calls_about_leases_do_not_delay_others
    sender, answered = slow_lbd
    slow, fast = %w[slow fast].map { |id| Lbd::Lease.new(id, 0.2, Lbd::Deadline.new(nil)) }
    sender.start
    [slow, fast].each { |lease| sender.hold(lease) { nil } }
    eventually("the renewal is answered") { answered.include?(:renewal) }
    sender.end(slow, :success)
    Thread.pass until sender.instance_variable_get(:@ended).empty? # not both with one call
    sender.end(fast, :success)
    eventually("the end is answered") { answered.include?(:end) }
  end

  def test_blames_no_endpoint_for_a_deadline_that_passed_before
    (upstream,) = upstreams(nil)
    batch, lease = client, client(mode: :lease)
    answer(batch)
    [batch, lease].each do |client|
      assert_raises(Net::OpenTimeout) { client.call(@cluster, Lbd::Deadline.new(0), true).run { flunk("it is sent") } }
      assert_empty client.sender.instance_variable_get(:@leases)
      client.close
    end
    assert_equal [1, 0, 0], (%w[success error cancelled].map { |outcome| daemon.reported(@cluster, outcome) })
    assert_equal 0, daemon.in_flight(@cluster)
    assert_equal 1, upstream.seen.size
  end

  def test_ends_the_lease_of_a_retry_that_came_too_late
    upstreams(nil, nil)
    client = client(mode: :lease)
    deadline = Lbd::Deadline.new(20)
    client.call(@cluster, deadline, true).run do |attempt|
      client.api.define_singleton_method(:call) do |*call, **options|
        super(*call, **options).tap { deadline.instance_variable_set(:@at, 0) }
      end
      assert_nil attempt.answered(503)
    end
    client.close
    assert_equal 0, daemon.in_flight(@cluster)
  end

  def test_reports_once_if_the_thread_is_killed
    upstreams(nil)
    begun = Queue.new
    front = upstream do |request|
      report = request.path == "/v1/reports" && request.body.include?('"requests":1') # others: what is in flight only
      sleep(0.3) if report && (begun << true).size == 1
      forward(request)
    end
    client = client("http://#{front.address}", report_interval: 0.05)
    answer(client)
    eventually("there is a report") { !begun.empty? }
    client.sender.instance_variable_get(:@threads).each { |thread| thread.kill.join }
    eventually("the report has arrived") { daemon.reported(@cluster, "success") == 1 }
    answer(client)
    client.close
    assert_equal 2, daemon.reported(@cluster, "success")
  end

  def test_respects_retry_after
    calls = 0
    front = upstream do |request|
      calls += 1
      request.reply(429, '{"code":"rate_limited"}', "Retry-After" => "30")
    end
    client = client("http://#{front.address}")
    3.times do
      error = assert_raises(Lbd::Unavailable) { client.request("GET", @url) }
      assert_equal ["rate_limited", 30.0], [error.code, error.retry_after]
    end
    assert_equal 1, calls
  end

  def test_follows_the_cluster
    upstreams(nil)
    client = client(max_age: 60)
    answer(client)
    other, = upstreams(nil)
    eventually("the new endpoint is used") { answer(client) == other.address }
  end

  def test_drops_all_and_recovers
    (upstream,) = upstreams(nil)
    client = client()
    assert_equal upstream.address, answer(client)
    shed = { category: "shed", drop_percentage: { numerator: 100 } }
    daemon.push(@cluster, [upstream.address], { drop_overloads: [shed] })
    eventually("all requests are dropped") { dropped(client)&.include?("shed") }
    daemon.push(@cluster, [upstream.address])
    eventually("no request is dropped") { dropped(client).nil? }
  end

  def test_limits_requests_in_flight_with_leases
    upstreams(nil)
    thresholds = { thresholds: [{ max_requests: 2 }] }
    daemon.call("PUT", "/v1/clusters/#{@cluster}/config",
                { name: @cluster, type: "EDS", circuit_breakers: thresholds })
    client = client(mode: :lease)
    client.request("GET", @url) do
      client.request("GET", @url) do
        assert_raises(Lbd::CircuitBroken) { client.request("GET", @url, timeout: 0.2) }
      end
    end
    eventually("a lease is free") { code(client) == "200" }
  end

  def test_renews_the_lease_of_a_long_request
    done = Queue.new
    upstreams(->(request) { done.pop && request.reply })
    client = client(mode: :lease, ttl: 1, report_interval: 60)
    done << true
    client.request("GET", @url)
    eventually("there is no lease to renew") { daemon.in_flight(@cluster).zero? }
    thread = Thread.new { client.request("GET", @url, timeout: nil).code }
    eventually("the request is in flight") { daemon.in_flight(@cluster) == 1 }
    expiry = leases.first["expires_at"]
    eventually("the lease is renewed") { (lease = leases.first) && lease["expires_at"] > expiry }
    done << true
    assert_equal "200", thread.value
    eventually("the lease has ended") { daemon.in_flight(@cluster).zero? }
  end

  def test_reads_its_token_again
    own, tokens = secured
    file = "#{own.directory}/token"
    File.write(file, "#{tokens[:old]}\n")
    client = client(own.lbd, token_file: file, max_age: 0.05)
    assert_raises(Lbd::PermissionDenied) { client.request("GET", "http://orders.lbd") }
    File.write(file, "#{tokens[:web]}\n")
    eventually("the new token is used") { code(client, "http://orders.lbd") == "200" }
    assert_raises(Lbd::PermissionDenied) { client.request("GET", "http://secret.lbd") }
    assert_raises(Lbd::PermissionDenied) { client(own.lbd, token: "wrong").request("GET", "http://orders.lbd") }
  ensure
    own&.close
  end

  def test_checks_the_certificate_of_lbd
    authority, context = TestCertificate.of("localhost")
    File.write("#{daemon.directory}/tls.key", context.key.to_pem, perm: 0o600)
    port = TCPServer.open("127.0.0.1", 0) { |server| server.local_address.ip_port }
    own = Daemon.new("--listen=127.0.0.1:#{port},tls,roles=pick+read,anonymous=pick+read",
                     "--tls-cert=#{authority.path}", "--tls-key=#{daemon.directory}/tls.key")
    endpoint = upstream
    own.push("orders", [endpoint.address])
    url = "http://orders.lbd"
    ca = authority.path
    assert_nil code(client("https://localhost:#{port}"), url)
    assert_nil code(client("https://127.0.0.1:#{port}", ca: ca), url)
    assert_equal "200", code(client("https://localhost:#{port}", ca: ca), url)
  ensure
    own&.close
  end

  private

  def answer(client)
    client.request("GET", @url).body
  rescue Lbd::Unavailable
    nil
  end

  # Why a request was dropped, if it was.
  def dropped(client)
    client.request("GET", @url) && nil
  rescue Lbd::Dropped => error
    error.message
  end

  def code(client, url = @url)
    client.request("GET", url, timeout: 1).code
  rescue Lbd::Error
    nil
  end

  def leases
    daemon.call("GET", "/v1/leases?cluster=#{@cluster}")["leases"]
  end

  # A daemon that wants tokens; orders has an endpoint.
  def secured
    tokens = { web: "web-#{"x" * 40}", old: "old-#{"x" * 40}", admin: "admin-#{"x" * 40}" }
    file = "#{daemon.directory}/identities.yaml"
    File.write(file, <<~YAML)
      tokens:
      - {name: web, sha256: "#{Digest::SHA256.hexdigest(tokens[:web])}", roles: [pick, read], clusters: [orders]}
      - {name: admin, sha256: "#{Digest::SHA256.hexdigest(tokens[:admin])}", roles: [admin, push, read, metrics]}
    YAML
    File.chmod(0o600, file)
    own = Daemon.new("--tokens=#{file}", token: tokens[:admin])
    own.push("orders", [upstream.address])
    own.push("secret", [upstream.address])
    [own, tokens]
  end
end
