# frozen_string_literal: true

require "minitest/autorun"
require "minitest/mock"
require "lbd"
require "lbd/faraday"

class BatchTest < Minitest::Test
  ANSWER = { "generation" => 7, "picks" => %w[a:1 a:1 b:1].map { |address| { "address" => address } },
             "dropped" => { "throttle" => 2 }, "circuit_broken" => 1 }.freeze

  def test_takes_each_element_in_turn
    batch = Lbd::Batch.of_answer("orders", ANSWER)
    3.times do
      taken = Array.new(6) { batch.take }.map { |each| each.is_a?(Lbd::Choice) ? each.address : each.code }.tally
      assert_equal({ "a:1" => 2, "b:1" => 1, "dropped" => 2, "circuit_broken" => 1 }, taken)
    end
  end

  def test_takes_another_address
    batch = Lbd::Batch.of_answer("orders", ANSWER)
    assert_equal("b:1", batch.draw { |address| address != "a:1" }.address)
    assert_nil(batch.draw { |_| false })
    drawn = Array.new(600) { batch.draw { |_| true }.address }.tally
    assert_operator drawn["a:1"], :>, 1.4 * drawn["b:1"]
  end

  def test_keeps_the_shares_of_the_addresses_that_are_not_avoided
    picks = { "a:1" => 10, "b:1" => 20, "c:1" => 30, "d:1" => 40 }.flat_map { |name, n| [{ "address" => name }] * n }
    batch = Lbd::Batch.of_answer("orders", { "generation" => 7, "picks" => picks })
    taken = Array.new(600) { batch.take { |address| address == "d:1" }.address }.tally
    assert_equal({ "a:1" => 100, "b:1" => 200, "c:1" => 300 }, taken)
    assert_kind_of(Lbd::Choice, batch.take { |_| true })
  end

  def test_takes_each_element_once_in_all_threads
    picks = Array.new(1000) { |i| { "address" => "a:#{i}" } }
    batch = Lbd::Batch.of_answer("orders", { "generation" => 1, "picks" => picks })
    taken = Array.new(10) { Thread.new { Array.new(100) { batch.take.address } } }.flat_map(&:value)
    assert_equal 1000, taken.uniq.size
    refute_equal picks.map { |pick| pick["address"] }, Array.new(1000) { batch.take.address }, "it is shuffled"
  end

  def test_rejects_what_is_not_a_batch
    [
      {},
      { "generation" => 1, "picks" => [] },
      { "generation" => 1, "picks" => [{}] },
      { "generation" => 1, "picks" => [7] },
      { "generation" => 1, "picks" => ["a:1"] },
      { "generation" => 1, "picks" => [{ "address" => 7 }] },
      { "generation" => 1, "picks" => [{ "address" => "" }] },
      { "generation" => 1, "picks" => [{ "address" => "orders" }] },
      { "generation" => 1, "picks" => [{ "address" => "unix:/run/docker.sock:1" }] },
      { "generation" => 1, "picks" => [{ "address" => "a:1\n" }] },
      { "generation" => nil, "picks" => [{ "address" => "a:1" }] },
      { "generation" => 1, "picks" => nil },
      { "generation" => 1, "picks" => [{ "address" => "a:1" }], "dropped" => { "x" => "y" } },
      { "generation" => 1, "picks" => [{ "address" => "a:1" }], "dropped" => 5 },
      { "generation" => 1, "picks" => [{ "address" => "a:1" }], "circuit_broken" => -1 },
      { "generation" => 1, "picks" => [{ "address" => "a:1" }], "circuit_broken" => 1_000_000_000 }
    ].each { |answer| assert_raises(ArgumentError, answer.to_s) { Lbd::Batch.of_answer("orders", answer) } }
  end
end

class HostTest < Minitest::Test
  HEADERS = {
    "X-User" => ["a&b"], "Tenant" => %w[1 2], "Cookie" => ["x=1; bad=\xff; sid=\"7\"", "asid=8; b=c=d"]
  }.freeze

  def query(fields, ask = nil)
    Lbd::Host.of("x.lbd", fields).query("/a%2Fb/c?q=1", ask) { |name| HEADERS[name] }
  end

  def test_asks_what_the_setting_says
    {
      "orders" => "",
      { hash: "header:X-User" } => "&hash=a%26b",
      { "hash" => "header:Absent" } => "",
      { hash: "cookie:sid" } => "&hash=7",
      { hash: "cookie:b" } => "&hash=c%3Dd",
      { hash: "cookie:id" } => "",
      { target: "t" } => "&path=%2Fa%252Fb%2Fc",
      { target: "xds:///t", headers: %w[Tenant Absent], hash: "cookie:x" } =>
        "&hash=1&path=%2Fa%252Fb%2Fc&header.Tenant=1&header.Tenant=2"
    }.each { |fields, asked| assert_equal asked, query(fields), fields }
  end

  def test_asks_what_the_program_says
    assert_equal "&hash=7", query("orders", Lbd::Ask.new(hash_key: 7))
    assert_equal "", query("orders", Lbd::Ask.new(hash_key: "", path: "/p", headers: { "A" => "1" }))
    assert_equal "&hash=a%26b", query({ hash: "header:X-User" }, Lbd::Ask.new)
    assert_equal "&hash=#{"%C3%BC" * 512}", query({ hash: "header:X-User" }, Lbd::Ask.new(hash_key: "\u00fc" * 600))
    ask = Lbd::Ask.new(path: "/p", headers: { "B" => %w[1 2], "A" => "3" })
    assert_equal "&path=%2Fp&header.A=3&header.B=1&header.B=2", query("xds:///t", ask)
  end

  def test_has_a_name
    { nil => nil, "a/b" => "a/b", { cluster: "c" } => "c", {} => "x", { target: "t" } => "xds:///t",
      { target: "xds:///t" } => "xds:///t" }.each do |fields, name|
      assert_equal [name], [Lbd::Host.of("x.lbd", fields)&.name]
    end
  end

  def test_rejects_what_is_not_valid
    [{ hash: "sid" }, { hash: "query:a" }, { hash: "header:" }, { cluster: "a", target: "b" },
     { paths: [] }].each do |bad|
      error = assert_raises(ArgumentError, bad) { Lbd::Client.new("http://127.0.0.1:1", hosts: { "Shop.lbd" => bad }) }
      assert_match(/hosts: shop.lbd: /, error.message)
    end
  end
end

class AskedTest < Minitest::Test
  def setup
    @asked = Lbd::Asked.new
  end

  def put(query, generation, published: false)
    batch = generation ? Lbd::Batch.new(generation, []) : Lbd::Batch.of_refusal(nil)
    @asked.put(batch.tap { |each| each.query = query }, published)
  end

  def assert_known(**known)
    assert_equal(known, known.to_h { |query, _| [query, !@asked[query.to_s].nil?] })
  end

  def test_keeps_one_generation
    put("a", 5, published: true)
    put("late", 4)
    assert_known(a: true, late: false)
    put("b", 6)
    assert_known(a: false, b: true)
    put("refused", nil)
    assert_known(b: true, refused: true)
    put("c", 3, published: true) # after a restart
    assert_known(b: false, refused: false, c: true)
  end

  def test_keeps_those_used_last
    put("a", 1)
    (2 * Lbd::Asked::SIZE).times do |i|
      put(i.to_s, 1)
      assert_known(a: true)
    end
    assert_known("0": false, "#{(2 * Lbd::Asked::SIZE) - 1}": true)
    assert_equal Lbd::Asked::SIZE, @asked.instance_variable_get(:@batches).size
  end

  def test_fetches_what_is_not_known
    fetch = ->(result) { @asked.fetch("a", Lbd::Deadline.new(60)) { result } }
    batch = Lbd::Batch.new(1, []).tap { |each| each.query, each.due = "a", Lbd::Clock.now + 60 }
    assert_same batch, fetch.call(batch)
    assert_same batch, @asked["a"]
    assert_same batch, fetch.call(:other) # it is of a call that has just ended
    batch.due = 0
    assert_equal :other, fetch.call(:other)
  end

  def test_keeps_fewer_if_they_are_long
    most = Lbd::Asked::BYTES / Lbd::Client::QUERY_MAX
    [1, 2].each do |generation|
      (2 * most).times do |i|
        2.times { put(i.to_s.rjust(Lbd::Client::QUERY_MAX), generation) }
        put("used", generation)
        assert_known(used: true)
        assert_equal [i + 2, most + 1].min, @asked.instance_variable_get(:@batches).size
      end
    end
  end

  def test_knows_what_was_answered_last
    get, answer = ->(query) { @asked[query] }, ->(query) { put(query, 1) }
    [[get, "a", "a"], [get, "b", "a"], # before any answer
     [answer, "", ""], [get, "b", ""], [answer, "b", "b"], [answer, "c&exclude=1", "b"], [answer, "d", "d"],
     [get, "b", "b"]].each do |step, query, last|
      step.call(query)
      assert_equal last, @asked.last
    end
  end
end

class ClusterTest < Minitest::Test
  def setup
    api = Lbd::Api.new("http://127.0.0.1:1", nil, nil, nil)
    @cluster = Lbd::Cluster.new("orders", api, max_age: 10, stale_for: 60, max_tokens: 100)
  end

  def batch(query, due)
    Lbd::Batch.of_answer("orders", BatchTest::ANSWER).tap { |batch| batch.query, batch.due = query, due }
  end

  def test_the_batch_of_a_key_says_nothing_of_other_addresses
    @cluster.asides.failed("c:1", false, 1)
    @cluster.send(:publish, batch("&hash=1", nil), nil)
    assert @cluster.asides.avoid?("c:1")
    @cluster.send(:publish, batch("", nil), nil)
    refute @cluster.asides.avoid?("c:1")
  end

  def test_uses_an_old_batch_of_a_key_without_lbd
    known, last = batch("&hash=1", Lbd::Clock.now - 1), batch("", nil)
    @cluster.instance_variable_get(:@asked).put(known, false)
    ask = ->(query) { @cluster.send(:ask, query, last, Lbd::Deadline.new(10)) }
    assert_same known, ask.call("&hash=1")
    known.due = 0
    @cluster.stub(:fetch, ->(*) { flunk("lbd is known to be unreachable") }) { assert_same known, ask.call("&hash=1") }
    assert_same last, ask.call("&hash=2")
    last = nil
    assert_raises(Lbd::Unavailable) { ask.call("&hash=2") }
  end

  def test_forgets_what_was_asked_when_it_is_idle
    asked = -> { @cluster.instance_variable_get(:@asked) }
    asked.call.put(batch("&hash=1", nil), false)
    now = 0
    Lbd::Clock.stub(:now, -> { now += Lbd::Cluster::IDLE_TIME }) { Thread.new { @cluster.send(:run) }.join }
    assert_nil asked.call["&hash=1"]
  end
end

class AsidesTest < Minitest::Test
  def setup
    @now = 1000.0
    @asides = Lbd::Asides.new
    @asides.define_singleton_method(:rand, &:end)
  end

  def at(seconds, &block)
    @now += seconds
    Lbd::Clock.stub(:now, -> { @now }, &block)
  end

  def assert_avoided(**avoided)
    assert_equal(avoided, avoided.to_h { |address, _| [address, @asides.avoid?(address)] })
  end

  def test_permits_a_trial_after_a_time_that_grows
    at(0) { @asides.failed(:a, false, 2) }
    at(0) { assert_avoided(a: true, b: false) }
    [1.2, 2.4, 4.8, 9.6, 12, 12].each do |pause|
      at(pause - 0.001) { assert_avoided(a: true) }
      at(0.002) do
        assert_avoided(a: false) # the trial
        assert_avoided(a: true)
        @asides.failed(:a, false, 2)
      end
    end
    at(13) do
      assert_avoided(a: false)
      @asides.failed(:a, true, 2) # it was connected
      assert_avoided(a: false)
    end
  end

  def test_takes_three_ends_without_an_answer
    2.times do
      2.times { @asides.failed(:a, true, 2) }
      assert_avoided(a: false)
      @asides.answered(:a)
    end
    3.times { @asides.failed(:a, true, 2) }
    assert_avoided(a: true)
  end

  def test_sets_no_more_aside_than_permitted_and_forgets
    at(0) do
      %i[a b c].each { |address| @asides.failed(address, false, 2) }
      assert_avoided(a: true, b: true, c: false)
      assert_equal %i[a b], @asides.avoided
      @asides.keep(%i[b c])
      assert_avoided(a: false, b: true)
    end
    at(1.3) do
      assert_empty @asides.avoided
      assert_avoided(b: false)
      assert_avoided(b: true)
    end
    at(Lbd::Asides::FORGET_TIME + Lbd::Asides::MAX + 1) { @asides.avoided }
    assert_empty @asides.instance_variable_get(:@addresses)
  end

  def test_connects_have_three_times_the_usual
    connects = Lbd::Connects.new
    [[0.01, 0.25], [0.4, 1.2], *[[0.001, 1.2]] * 15, [0.001, 0.25]].each do |took, limit|
      connects.add(took)
      assert_in_delta limit, connects.limit
    end
  end
end

class BudgetTest < Minitest::Test
  def test_permits_retries_until_half_of_the_tokens_are_left
    budget = Lbd::Budget.new(10)
    assert_equal([true, true, true, true, false, false], Array.new(6) { budget.failed })
    21.times { budget.succeeded }
    assert([budget.failed, budget.failed].any?)
  end

  def test_fits_batches
    budget = Lbd::Budget.new(10)
    [[20, 10], [500, 50], [1000, 100], [200, 20], [100, 10]].each do |size, max|
      budget.fit(size, 100)
      budget.succeeded
      assert_equal max, budget.instance_variable_get(:@max)
      assert_operator budget.instance_variable_get(:@tokens), :>=, max
    end
  end

  def test_never_has_more_than_all_tokens
    budget = Lbd::Budget.new(2)
    100.times { budget.succeeded }
    refute budget.failed
  end
end

class CountsTest < Minitest::Test
  def setup
    @now = 1000.0
    Lbd::Clock.stub(:now, -> { @now }) { @counts = Lbd::Counts.new }
  end

  def at(seconds, &block)
    @now += seconds
    Lbd::Clock.stub(:now, -> { @now }, &block)
  end

  def entry(**fields)
    { address: "a:1", requests: 0, errors: 0, cancelled: 0, in_flight_seconds: 0.0, latency_seconds: 0.0 }.merge(fields)
  end

  def test_counts_the_time_in_flight_within_the_interval
    began = at(0) { @counts.start("a:1") { |now| now } }
    assert_equal([1000.0, [entry(in_flight_seconds: 2.0)]], at(2) { @counts.take })
    at(1) { @counts.answered("a:1", :error, began) }
    at(1) { @counts.finish("a:1") }
    taken = at(5) { @counts.take }
    assert_equal [1002.0, [entry(requests: 1, errors: 1, in_flight_seconds: 2.0, latency_seconds: 3.0)]], taken
    assert_empty(at(5) { @counts.take }.last)
  end

  def test_gives_back_what_was_not_sent
    request(:cancelled)
    since, entries = at(5) { @counts.take }
    request(:success)
    at(0) { @counts.give_back(since, entries) }
    assert_equal([1000.0, [entry(requests: 2, cancelled: 1)]], at(0) { @counts.take })
  end

  def test_forgets_what_is_too_old
    request(:success)
    since, entries = at(0) { @counts.take }
    at(Lbd::Counts::MAX_AGE + 1) { @counts.give_back(since, entries) }
    assert_empty(at(0) { @counts.take }.last)
  end

  private

  def request(outcome)
    at(0) do
      @counts.start("a:1") { nil }
      @counts.answered("a:1", outcome, @now)
      @counts.finish("a:1")
    end
  end
end

class ErrorsTest < Minitest::Test
  def test_has_a_type_for_each_code
    [
      [503, { "code" => "dropped", "detail" => "x" }, Lbd::Dropped, "dropped"],
      [503, { "code" => "dropped", "category" => "shed" }, Lbd::Dropped, "dropped"],
      [503, { "code" => "circuit_broken" }, Lbd::CircuitBroken, "circuit_broken"],
      [404, { "code" => "unknown_cluster" }, Lbd::UnknownCluster, "unknown_cluster"],
      [401, {}, Lbd::PermissionDenied, "401"],
      [403, { "code" => "permission_denied" }, Lbd::PermissionDenied, "permission_denied"],
      [503, { "code" => "no_ready_endpoint" }, Lbd::Unavailable, "no_ready_endpoint"],
      [429, { "code" => ["x"] }, Lbd::Unavailable, "429"]
    ].each do |status, problem, kind, code|
      error = Lbd::Errors.of_answer("orders", status, problem, 0.0)
      assert_kind_of kind, error
      assert_kind_of Lbd::Error, error
      assert_equal code, error.code
      assert_match(/orders/, error.message)
    end
  end

  def test_is_also_an_error_of_faraday
    error = Lbd::Errors.of_answer("orders", 503, { "code" => "dropped", "detail" => "less load" }, 2.0)
    like = Lbd::Errors.like(error, Lbd::Faraday::ERRORS)
    assert_kind_of Faraday::Error, like
    assert_kind_of Lbd::Dropped, like
    assert_equal [error.message, "orders", "dropped", 2.0], [like.message, like.cluster, like.code, like.retry_after]
  end

  def test_can_be_raised_in_tests_of_callers
    error = assert_raises(Lbd::Dropped) { raise Lbd::Dropped, "less load" }
    assert_equal "less load", error.message
  end
end

class FailuresTest < Minitest::Test
  def test_has_a_kind_for_each_error
    {
      shortage: [Errno::EMFILE.new, Errno::EADDRNOTAVAIL.new],
      timeout: [Net::ReadTimeout.new, Net::OpenTimeout.new, Net::WriteTimeout.new, Timeout::Error.new],
      connection: [Errno::ECONNREFUSED.new, Errno::ETIMEDOUT.new, Errno::EHOSTUNREACH.new, SocketError.new,
                   EOFError.new, IOError.new, OpenSSL::SSL::SSLError.new, Net::HTTPBadResponse.new],
      response: [Net::HTTPHeaderSyntaxError.new, Net::ProtocolError.new, Zlib::DataError.new],
      nil => [ArgumentError.new, RuntimeError.new]
    }.each { |kind, errors| errors.each { |error| assert_equal [kind], [Lbd::Failures.kind(error)], error.class } }
  end
end

class StreamTest < Minitest::Test
  def test_ends_at_the_deadline_if_there_is_always_more
    reader, writer = IO.pipe
    writer.write("x")
    [reader, writer].each do |io|
      assert_raises(Timeout::Error) { Lbd::Stream.new(io, Lbd::Deadline.new(0)).read_nonblock(1) }
      assert_raises(Timeout::Error) { Lbd::Stream.new(io, Lbd::Deadline.new(0)).write_nonblock("x") }
    end
    assert_equal "x", Lbd::Stream.new(reader, Lbd::Deadline.new(nil)).read_nonblock(1)
  end
end

class ApiTest < Minitest::Test
  def test_escapes_names
    assert_equal "eu%2Forders%201", Lbd::Api.escape("eu/orders 1")
  end
end

class ClientTest < Minitest::Test
  def test_knows_the_hosts_of_clusters
    client = Lbd::Client.new("http://127.0.0.1:1", hosts: { "shop.test" => "eu/orders" })
    { "orders.lbd" => "orders", "eu.orders.lbd" => "eu.orders", "shop.test" => "eu/orders", "lbd" => nil, ".lbd" => nil,
      "orders.lbd.example" => nil, "orders.lbd\n.example" => nil, "" => nil, nil => nil }.each do |host, cluster|
      assert_equal [cluster], [client.cluster_of(host)], host
    end
    client = Lbd::Client.new("http://127.0.0.1:1", hosts: ->(host) { host[/\A(\w+)\.internal\z/, 1] })
    assert_equal "orders", client.cluster_of("orders.internal")
    assert_equal "orders", Lbd::Client.new("http://127.0.0.1:1").cluster_of("Orders.LBD")
    client = Lbd::Client.new("http://127.0.0.1:1", hosts: { "Shop.test" => "orders" })

    assert_equal "orders", client.cluster_of("SHOP.Test")
  end

  def test_rejects_settings
    [["ftp://x"], ["localhost:8080"], ["http://x/path"], ["unix:#{"x" * 200}"]].each do |lbd|
      assert_raises(ArgumentError, lbd) { Lbd::Client.new(*lbd) }
    end
    assert_raises(ArgumentError) { Lbd::Client.new(mode: "turbo") }
    client = Lbd::Client.new("http://127.0.0.1:1")
    assert_raises(ArgumentError) { client.request("GET", "ftp://orders.lbd/") }
    assert_raises(ArgumentError) { client.request("GET", "http://127.0.0.1:1/", nil, { "A\r\nB" => "x" }) }
  end

  def test_replaces_a_batch_after_80_to_100_percent_of_max_age
    cluster = Lbd::Cluster.new("orders", nil, max_age: 10, stale_for: 60, max_tokens: 100)
    ages = Array.new(500) { cluster.send(:age) }
    assert_empty(ages.reject { |age| age.between?(8, 10) })
    assert_operator ages.max - ages.min, :>, 1
    assert_operator Lbd::Cluster.new("orders", nil, max_age: 0, stale_for: 60, max_tokens: 100).send(:age), :>=, 0.1
  end

  def test_prefers_settings_to_the_environment
    ENV.update("LBD_TOKEN" => "environment", "LBD_TOKEN_FILE" => "/environment")
    api = ->(**settings) { Lbd::Client.new("http://127.0.0.1:1", **settings).api }
    tokens = ->(one) { [one.instance_variable_get(:@token), one.instance_variable_get(:@token_file)] }
    assert_equal ["environment", "/environment"], tokens.call(api.call)
    assert_equal ["program", nil], tokens.call(api.call(token: "program"))
    assert_equal [nil, "/program"], tokens.call(api.call(token_file: "/program"))
  ensure
    %w[LBD_TOKEN LBD_TOKEN_FILE].each { |name| ENV.delete(name) }
  end

  def test_forgets_clusters_without_requests
    client = Lbd::Client.new("http://127.0.0.1:1")
    Lbd::Client::CLUSTERS_MAX.times { |i| client.cluster("orders#{i}") }
    busy = client.instance_variable_get(:@clusters).values
    busy.each { |cluster| cluster.instance_variable_set(:@batch, Object) }
    assert_raises(Lbd::Unavailable) { client.call("other", Lbd::Deadline.new(1), false) }
    busy.first.instance_variable_set(:@batch, nil)
    client.call("other", Lbd::Deadline.new(1), false)
    assert_equal Lbd::Client::CLUSTERS_MAX, client.instance_variable_get(:@clusters).size
  end

  def test_does_not_show_its_token
    assert_includes Lbd::Client.new("http://127.0.0.1:1", token: "hidden").inspect, "127.0.0.1:1"
    refute_includes Lbd::Client.new("http://127.0.0.1:1", token: "hidden").inspect, "hidden"
  end

  def test_fails_after_close
    client = Lbd::Client.new("http://127.0.0.1:1")
    2.times { client.close }
    assert_raises(Lbd::Unavailable) { client.request("GET", "http://orders.lbd/") }
  end
end
