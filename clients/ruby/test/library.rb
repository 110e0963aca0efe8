# frozen_string_literal: true

# The tests of all HTTP libraries. sender(client) returns a lambda that sends a request, with its deadline and what it
# asks, and returns status and body. timeouts are the errors of a deadline.
module Library
  MODES = %i[batch pick lease].freeze

  def test_keeps_host_path_and_body
    (upstream,) = upstreams(nil)
    send = sender(client)
    assert_equal [200, upstream.address], send.call("POST", "#{@url}/a%20b?c=d", "body")
    assert_equal [["POST", "/a%20b?c=d", "#{@cluster}.lbd", "body"]], upstream.seen
  end

  def test_does_not_touch_other_hosts
    other = upstream
    assert_equal 200, sender(client).call("GET", "http://#{other.address}/x").first
    assert_equal [["GET", "/x", other.address, ""]], other.seen
  end

  # The addresses are not those of loopback, for which Ruby uses no proxy.
  def test_the_proxy_of_the_environment_is_not_for_endpoints
    (upstream,) = upstreams(nil)
    daemon.push(@cluster, [upstream.address.sub("127.0.0.1", "0.0.0.0")])
    urls = HttpProxy.used { assert_equal [200, upstream.address], sender(client).call("GET", @url) }
    assert_empty urls
  end

  def test_maps_hosts
    (upstream,) = upstreams(nil)
    send = sender(client(hosts: { "shop.test" => @cluster }))
    assert_equal 200, send.call("GET", "http://shop.test/").first
    assert_equal "shop.test", upstream.seen[0][2]
  end

  def test_keys_choose_the_endpoint_and_the_program_can_read_it
    upstreams(nil, nil, nil)
    daemon.call("PUT", "/v1/clusters/#{@cluster}/config", { type: "EDS", lb_policy: "RING_HASH" })
    MODES.each do |mode|
      send = sender(client(mode: mode))
      chosen = Array.new(2) do
        Array.new(20) do |key|
          ask = Lbd::Ask.new(hash_key: key)
          _, address = send.call("GET", @url, nil, 10, ask)
          assert_equal [@cluster, address, "zone-0", 0, 1],
                       [ask.choice.cluster, ask.choice.address, ask.choice.locality.zone, ask.choice.priority,
                        ask.choice.attempt]
          address
        end
      end
      assert_equal 1, chosen.uniq.size, mode
      assert_operator chosen[0].uniq.size, :>, 1, mode
    end
  end

  def test_the_choice_can_be_read_after_an_error
    ask = Lbd::Ask.new
    one, two = upstreams(Case::RESET, Case::RESET)
    assert_raises(StandardError) { sender(client).call("GET", @url, nil, 10, ask) }
    assert_equal 2, ask.choice.attempt
    assert_includes [one, two].map(&:address), ask.choice.address
    assert_raises(Lbd::UnknownCluster) { sender(client).call("GET", "http://#{@cluster}-no.lbd/", nil, 10, ask) }
    assert_nil ask.choice
  end

  def test_retries_at_another_endpoint
    MODES.product([Case::RESET, Case.status(503)]).each do |mode, broken|
      good, bad = upstreams(nil, broken)
      send = sender(client(mode: mode))
      20.times { assert_equal [200, good.address], send.call("PUT", @url, "x"), mode }
      assert_operator bad.seen.size, :>, 0
      assert_equal ["x"], good.seen.map(&:last).uniq
    end
  end

  def test_does_not_retry_at_the_same_endpoint
    MODES.each do |mode|
      (bad,) = upstreams(Case.status(503))
      assert_equal [503, "no"], sender(client(mode: mode)).call("GET", @url)
      assert_equal 1, bad.seen.size, mode
    end
  end

  def test_limits_retries
    all = upstreams(*[Case.status(503)] * 4)
    sender(client(retries: 1)).call("GET", @url)
    assert_equal(2, all.sum { |upstream| upstream.seen.size })
    send = sender(client(max_tokens: 4))
    10.times { send.call("GET", @url) }
    assert_equal(11, all.sum { |upstream| upstream.seen.size })
  end

  def test_sends_elsewhere_what_was_not_sent
    good, = upstreams(nil)
    daemon.push(@cluster, [good.address, refusing])
    MODES.each do |mode|
      client = client(mode: mode, retries: 0, max_tokens: 0)
      send = sender(client)
      20.times { assert_equal [200, good.address], send.call("POST", @url, body), mode }
      assert_equal ["body"] * 20, good.seen.map(&:last)
      client.close
      assert_equal 0, daemon.reported(@cluster, "error")
    end
    assert_operator daemon.metric("lbd_reported_connect_failures_total{cluster=\"#{@cluster}\"}"), :>=, 2
    leases = "lbd_leases_finished_total{cluster=\"#{@cluster}\",outcome=\"unreachable\"}"
    assert_operator daemon.metric(leases), :>, 0
  end

  # A body that can be sent once.
  def body
    StringIO.new("body")
  end

  def test_does_not_wait_for_an_endpoint_that_is_silent
    good, = upstreams(nil)
    daemon.push(@cluster, [good.address, full_server])
    send = sender(client(connect_timeout: 60))
    20.times { assert_equal 200, send.call("POST", @url, "x", 20).first }
  end

  def test_does_not_retry_a_post
    good, bad = upstreams(nil, Case.status(503))
    send = sender(client)
    results = Array.new(20) { send.call("POST", @url, "x").first }
    assert_equal [200, 503], results.uniq.sort
    assert_equal 20, good.seen.size + bad.seen.size
  end

  def test_returns_the_result_of_the_last_try
    one, two = upstreams(Case.status(503), Case.status(502))
    assert_includes [[502, "no"], [503, "no"]], sender(client).call("GET", @url)
    assert_equal 2, one.seen.size + two.seen.size
  end

  def test_keeps_the_deadline
    one, two = upstreams(->(_) { sleep }, ->(_) { sleep })
    send = sender(client)
    began = Daemon.now
    assert_raises(*timeouts) { send.call("GET", @url, nil, 1) }
    assert_operator Daemon.now - began, :<, 20, "not the 30 s of the client"
    assert_equal 1, one.seen.size + two.seen.size
  end

  def test_reports_how_requests_ended
    upstreams(->(request) { request.reply(request.path == "/bad" ? 500 : 200) })
    client = client()
    send = sender(client)
    ["/", "/", "/bad"].each { |path| send.call("GET", @url + path) }
    client.close
    assert_equal([2, 1], %w[success error].map { |outcome| daemon.reported(@cluster, outcome) })
  end

  def test_ends_leases
    upstreams(nil)
    send = sender(client(mode: :lease, report_interval: 60))
    5.times { send.call("GET", @url) }
    eventually("no lease is held") { daemon.in_flight(@cluster).zero? }
  end

  def test_names_unknown_clusters
    send = sender(client)
    error = assert_raises(Lbd::UnknownCluster) { send.call("GET", @url) }
    assert_equal "unknown_cluster", error.code
    assert_equal @cluster, error.cluster
  end

  def test_says_when_lbd_is_unreachable
    other = upstream
    MODES.each do |mode|
      send = sender(client("http://127.0.0.1:1", mode: mode))
      assert_raises(Lbd::Unavailable) { send.call("GET", @url) }
      send = sender(client("http://127.0.0.1:1", mode: mode, fallback: other.address))
      assert_equal 200, send.call("GET", @url).first
    end
  end

  def test_drops_what_lbd_drops
    other = upstream
    shed = { category: "shed", drop_percentage: { numerator: 50 } }
    daemon.push(@cluster, [other.address], { drop_overloads: [shed] })
    send = sender(client)
    results = Array.new(100) do
      send.call("GET", @url).first
    rescue Lbd::Dropped
      :dropped
    end.tally
    assert_operator results[200], :>, 10
    assert_operator results[:dropped], :>, 10
    assert_equal results[200], other.seen.size
  end
end
