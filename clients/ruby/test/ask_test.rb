# frozen_string_literal: true

require "English"
require_relative "case"
require_relative "library"

# Requests that ask something beside their cluster, with the client itself. The conformance tests have more.
class AskTest < Case
  RING = { type: "EDS", lb_policy: "RING_HASH" }.freeze
  MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
  LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"

  # lbd behind a server that notes its picks, and the calls that follow clusters, and can be gone. Instead of lbd, @hold
  # may answer a call of a path.
  def lbd_of(daemon)
    @picks = Queue.new
    @follows = Queue.new
    @gone = false
    front = upstream do |request|
      next :close if @gone

      { "/v1/pick" => @picks, "/v1/clusters/" => @follows }.find { |path, _| request.path.start_with?(path) }
                                                            &.last&.push(request.path)
      held = @hold&.call(request.path)
      next request.reply(*held) if held

      answer = daemon.call(request.verb, request.path, request.body.empty? ? nil : JSON.parse(request.body))
      request.reply(200, JSON.generate(answer))
    end
    "http://#{front.address}"
  end

  # A target whose routes choose a cluster with one upstream each: by a header, and by the path. default is the path of
  # the last one.
  def target(daemon, default = "/")
    all = %w[beta slow other].map { |name| ["#{@cluster}-#{name}", upstream] }
    all.each { |name, each| daemon.push(name, [each.address]) }
    matches = [{ prefix: "/", headers: [{ name: "tenant", string_match: { exact: "beta" } }] }, { prefix: "/slow" },
               { prefix: default }]
    routes = all.zip(matches).map { |(name, _), match| { match: match, route: { cluster: name } } }
    manager = { "@type" => MANAGER, route_config: { virtual_hosts: [{ name: "all", domains: ["*"], routes: routes }] } }
    listener = { "@type" => LISTENER, name: @cluster, api_listener: { api_listener: manager } }
    daemon.call("POST", "/v1/snapshot", { resources: [listener] })
    all.map { |_, each| each.address }
  end

  def hosts
    { "#{@cluster}.lbd" => { target: @cluster, headers: ["Tenant"] } }
  end

  def answer(client, path = "/", headers = {}, **ask)
    ask = Lbd::Ask.new(**ask)
    [client.request("GET", "#{@url}#{path}", nil, headers, ask: ask).body, ask.choice]
  end

  def test_routes_choose_the_cluster
    beta, slow, other = target(daemon)
    Library::MODES.each do |mode|
      client = client(mode: mode, hosts: hosts)
      assert_equal other, answer(client).first, mode
      assert_equal slow, answer(client, "/slow?x=/").first, mode
      assert_equal slow, answer(client, path: "/slow").first, mode
      assert_equal beta, answer(client, "/", { "Tenant" => "beta" }).first, mode
      assert_equal beta, answer(client, headers: { "tenant" => "beta" }).first, mode
      client.close
    end
    counted = %w[beta slow other].map { |name| daemon.reported("#{@cluster}-#{name}", "success") }
    assert_equal [2, 2, 1], counted, "those of the mode batch"
  end

  def test_reports_connects_at_the_cluster_that_was_chosen
    target(daemon)
    daemon.push("#{@cluster}-other", [refusing])
    client = client(hosts: hosts)
    assert_raises(Errno::ECONNREFUSED) { client.request("GET", @url, timeout: 0.5) }
    failures = "lbd_reported_connect_failures_total{cluster=\"#{@cluster}-other\"}"
    eventually("the failure is reported") { daemon.metric(failures) == 1 }
  end

  def test_a_path_without_a_route_harms_no_other
    _, slow, other = target(daemon, "/other")
    client = client(max_age: 0.2, hosts: hosts)
    no_route = lambda do
      error = assert_raises(Lbd::Unavailable) { answer(client, "/no") }
      assert_equal "no_route", error.code
    end
    found = %w[/slow /other /slow /other].map do |path|
      no_route.call
      answer(client, path).first
    end
    assert_equal [slow, other] * 2, found
    cluster = client.cluster("xds:///#{@cluster}")
    3.times do
      batch = cluster.batch
      assert_equal slow, answer(client, "/slow").first
      eventually("the batch is replaced") { no_route.call && !cluster.batch.equal?(batch) }
    end
  end

  def test_what_is_too_long_is_an_error_of_the_request
    _, slow, = target(daemon)
    states = []
    Library::MODES.each do |mode|
      client = client(mode: mode, hosts: hosts, fallback: upstream.address, on_state: ->(state) { states << state })
      ["#{@url}/slow#{"a" * 5000}", # lbd says so
       "#{@url}/slow#{"%2F" * 100_000}", "http://#{"a" * 100_000}.lbd/"].each do |url|
        error = assert_raises(Lbd::Unavailable) { client.request("GET", url) }
        assert_equal "invalid_argument", error.code, mode
        assert_operator error.message.size, :<, 1000
        assert_equal slow, answer(client, "/slow").first
      end
    end
    assert_empty states
  end

  def test_a_name_can_be_a_target
    _, _, other = target(daemon)
    assert_equal other, answer(client(hosts: { "#{@cluster}.lbd" => "xds:///#{@cluster}" })).first
    error = assert_raises(Lbd::UnknownCluster) { client(hosts: ->(_) { "xds:///#{@cluster}-no" }).request("GET", @url) }
    assert_equal "unknown_target", error.code
  end

  # Upstreams of a ring, and a key of the first of them.
  def ring(*behaviors)
    all = upstreams(*behaviors)
    daemon.call("PUT", "/v1/clusters/#{@cluster}/config", RING)
    client = client(mode: :pick)
    keys = (1..).lazy.select { |key| answer(client, hash_key: key).last.address == all[0].address }
    [all, keys.first]
  end

  def test_known_keys_make_no_calls
    (first,), key = ring(nil, nil, nil)
    client = client(lbd_of(daemon), max_age: 60)
    20.times { assert_equal first.address, answer(client, hash_key: key).first }
    assert_match(/&n=20&.*&hash=#{key}\z/, @picks.pop)
    assert_empty @picks
    answer(client)
    assert_match(/&n=20&.*wait=\d+ms\z/, @picks.pop)
  end

  # Yields a client whose call for the hash key held has begun, and what ends it: with an answer instead of that of lbd.
  def holding
    upstreams(nil)
    begun, ends = Queue.new, Queue.new
    client = client(lbd_of(daemon), max_age: 60)
    answer(client, hash_key: "other")
    @picks.clear
    @hold = lambda do |path|
      next unless path.include?("&hash=held")

      @hold = nil
      begun << true
      ends.pop
    end
    with(:FETCH_WAIT, 20.0) do
      assert_raises(Lbd::Unavailable) { client.request("GET", @url, timeout: 0.3, ask: Lbd::Ask.new(hash_key: "held")) }
      begun.pop # the call does not end with its request
      yield client, ends
    end
  end

  # Requests with the key held that wait for a call.
  def waiting(client, number)
    threads = Array.new(number) do
      Thread.new do
        answer(client, hash_key: "held").first
      rescue Lbd::Error => error
        error
      end
    end
    eventually("all wait") { threads.all? { |thread| thread.backtrace&.first.to_s.end_with?("join'") } }
    threads
  end

  def test_requests_with_a_key_wait_for_one_call
    holding do |client, ends|
      threads = waiting(client, 30)
      ends << nil
      assert_equal [daemon.call("GET", "/v1/pick?cluster=#{@cluster}")["address"]], threads.map(&:value).uniq
      assert_equal 1, @picks.size
    end
  end

  def test_requests_with_a_key_have_the_error_of_the_call
    holding do |client, ends|
      threads = waiting(client, 2)
      ends << [503, '{"code":"no_ready_endpoint"}']
      errors = threads.map(&:value)
      assert_equal ["no_ready_endpoint"] * 2, errors.map(&:code)
      refute_same(*errors)
      refute_nil answer(client, hash_key: "held").first
    end
  end

  def test_a_child_of_fork_does_not_wait_for_a_call_of_its_parent
    holding do |client, ends|
      child = fork do
        answer(client, hash_key: "held")
        exit!(0)
      ensure
        exit!(1)
      end
      Process.wait(child)
      assert_predicate $CHILD_STATUS, :success?
      ends << nil
    end
  end

  def test_the_next_endpoint_of_the_ring_is_remembered
    (first, second, third), key = ring(Case.status(503), nil, nil)
    client = client(lbd_of(daemon), max_age: 60)
    others = Array.new(10) { answer(client, hash_key: key).tap { |_, choice| assert_equal 2, choice.attempt }.first }
    assert_includes [[second.address], [third.address]], others.uniq
    excluded = "&exclude=#{URI.encode_www_form_component(first.address)}"
    assert_equal([false, true], Array.new(2) { @picks.pop.end_with?(excluded) })
    assert_empty @picks
  end

  def test_without_a_key_a_retry_does_not_need_the_batch_of_a_key
    (_, *good), key = ring(Case.status(503), nil, nil)
    client = client(max_age: 60)
    answer(client, hash_key: key) # the batch of the cluster has the first one only
    eventually("a request is sent again") do
      address, choice = answer(client)
      assert_includes good.map(&:address), address
      choice.attempt == 2
    end
  end

  def test_sets_endpoints_of_a_ring_aside
    (first,), key = ring(nil, nil, nil)
    first.close
    client = client(max_age: 60)
    assert_equal [2, 1, 1], (Array.new(3) { answer(client, hash_key: key).last.attempt })
  end

  def test_without_lbd_new_keys_go_to_any_endpoint
    own = Daemon.new
    own.push(@cluster, [upstream, upstream].map(&:address))
    own.call("PUT", "/v1/clusters/#{@cluster}/config", RING)
    client = client(lbd_of(own), max_age: 0.1, stale_for: 3)
    address, = answer(client, hash_key: "old")
    @gone = true
    5.times { assert_equal address, answer(client, hash_key: "old").first }
    refute_nil answer(client, hash_key: "new").first
    eventually("the batches are stale") do
      answer(client, hash_key: "old") && nil
    rescue Lbd::Unavailable
      true
    end
    @gone = false
    eventually("lbd is used again") do
      answer(client, hash_key: "new")
    rescue Lbd::Unavailable
      nil
    end
  ensure
    own&.close
  end

  def test_without_lbd_new_keys_go_to_any_endpoint_that_is_not_set_aside
    (first,), key = ring(nil, nil, nil)
    client = client(lbd_of(daemon), max_age: 60)
    answer(client, hash_key: key)
    client.cluster(@cluster).failed("127.0.0.1:1", false)
    @gone = true
    address, choice = answer(client, hash_key: "new")
    assert_equal [first.address, 1], [address, choice.attempt]
  end

  def test_a_retry_needs_lbd
    statuses = []
    _, key = ring(->(request) { request.reply(statuses.shift || 200) }, nil)
    statuses.push(200, 503, 503)
    client = client(lbd_of(daemon), max_age: 60)
    answer(client, hash_key: key)
    @gone = true
    assert_equal 1, answer(client, hash_key: key).last.attempt
    assert_equal [503], statuses
  end

  def test_without_lbd_new_paths_of_a_target_fail
    _, slow, = target(daemon)
    client = client(lbd_of(daemon), hosts: hosts)
    assert_equal slow, answer(client, "/slow").first
    assert_match(%r{/#{@cluster}-slow\?.*&target=#{@cluster}(&|\z)}, @follows.pop)
    @gone = true
    assert_raises(Lbd::Unavailable) { answer(client, "/new") }
    assert_equal slow, answer(client, "/slow").first
  end

  def test_a_fallback_has_an_address_only
    address = upstream.address
    _, choice = answer(client("http://127.0.0.1:1", fallback: address))
    assert_equal [nil, address, nil, nil, nil, 1], choice.to_a
  end
end
