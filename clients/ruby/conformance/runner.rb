# frozen_string_literal: true

require "json"
require "lbd"
require_relative "adapters"

# Drives the client as the conformance tests say (clients/conformance/README.md).
class Runner
  OPTIONS = %w[stale_for report_interval max_age retries max_tokens fallback ttl connect_timeout].freeze
  HOST = %w[hash target headers].freeze
  ERRORS = {
    Lbd::Dropped => "dropped", Lbd::CircuitBroken => "circuit_broken", Lbd::Unavailable => "unavailable",
    Lbd::UnknownCluster => "unknown_cluster", Lbd::PermissionDenied => "permission_denied"
  }.freeze

  def run
    while (line = $stdin.gets)
      command = JSON.parse(line)
      puts JSON.generate(public_send(command["do"], command))
      $stdout.flush
      break if command["do"] == "close"
    end
  end

  def open(command)
    close
    adapter = Adapters::ALL[command.fetch("adapter", "core")] or return { unsupported: "no such adapter" }
    options = command.fetch("options", {})
    @choice = options.delete("choice")
    hooks = options.key?("hooks") ? hooks(options.delete("hooks") == "fail") : {}
    @hash = options["hash"]
    host = { "cluster" => (command["cluster"] unless options["target"]) }.merge(options.slice(*HOST))
    host.delete("hash") if @hash == "code"
    options = options.except(*HOST)
    unknown = options.keys - OPTIONS
    return { unsupported: "options #{unknown}" } unless unknown.empty?

    @client = Lbd::Client.new(command["lbd"], mode: command["mode"], token: command["token"],
                                              token_file: command["token_file"], hosts: { "upstream.test" => host },
                                              **hooks, **options.transform_keys(&:to_sym))
    @send = adapter.call(@client)
    @alone = adapter.call(nil)
    { ok: true }
  end

  def request(command)
    ask = ask(command)
    result, text = one(command, ask)
    answer = result.is_a?(Integer) ? { status: result, body: text } : { error: result, message: text }
    answer[:choice] = choice(ask.choice) if @choice && ask.choice
    answer
  end

  def load(command)
    began = now
    left = Queue.new
    command["n"].times { |i| left << [i, command["rate"] ? began + ((i + 1) / command["rate"].to_f) : began] }
    left.close
    threads = Array.new(command.fetch("threads", 1)) do
      Thread.new { [].tap { |all| (one = left.pop) && (all << timed(command, *one, began)) until left.empty? } }
    end
    all = threads.flat_map(&:value)
    statuses, errors = all.map(&:first).tally.partition { |result, _| result.is_a?(Integer) }
    seconds = all.group_by { |_, second| second }.sort.map { |_, each| each.map(&:last).sort }
    { statuses: statuses.to_h, errors: errors.to_h, seconds: now - began,
      p99: seconds.map { |took| took[took.size * 99 / 100] } }
  end

  def fork(command)
    reader, writer = IO.pipe
    pid = Process.fork do
      reader.close
      writer.write(JSON.generate(load(command.merge("threads" => 1))))
      writer.close
    end
    writer.close
    answer = JSON.parse(reader.read)
    Process.wait(pid)
    answer
  end

  def events(_command)
    @lock.synchronize { { attempts: @attempts.shift(@attempts.size), states: @states.shift(@states.size) } }
  end

  def close(_command = nil)
    @client&.close
    @client = nil
    { ok: true }
  end

  private

  # Hooks that remember what they get, and fail if they should.
  def hooks(fail)
    @attempts, @states, @lock = [], [], Mutex.new
    on_attempt = lambda do |attempt|
      choice = attempt.choice
      @lock.synchronize do
        @attempts << { cluster: choice.cluster, address: choice.address, number: choice.attempt,
                       outcome: attempt.outcome, seconds: attempt.duration }
      end
      raise "a hook of the test" if fail
    end
    { on_attempt: on_attempt, on_state: ->(state) { @lock.synchronize { @states << state } } }
  end

  # What a request asks of lbd.
  def ask(command)
    Lbd::Ask.new(hash_key: (command["key"] if @hash == "code"))
  end

  def choice(choice)
    choice.to_h.slice(:cluster, :address, :priority, :attempt).merge(zone: choice.locality&.zone)
  end

  # The result of a request of a load, which is due at a time, the second of that, and how long it took from then on.
  def timed(command, index, due, began)
    sleep([due - now, 0].max)
    command = command.merge("key" => "#{command["key"]}-#{index % command["keys"]}") if command["keys"]
    result = one(command, ask(command)).first
    [result, (due - began).to_i, now - due]
  end

  # A status and a body, or an error and a message.
  def one(command, ask)
    sender = command["url"] ? @alone : @send
    url = command["url"] || "http://upstream.test#{command.fetch("path", "/")}"
    sender.call(command.fetch("method", "GET"), url, command["body"], headers(command), command["timeout"], ask)
  rescue Lbd::Error => error
    [ERRORS.find { |kind, _| error.is_a?(kind) }.last, error.message]
  rescue Lbd::ConnectTimeout, *Adapters::CONNECTION => error
    ["connection", error.inspect]
  rescue *Adapters::TIMEOUTS => error
    ["timeout", error.inspect]
  rescue StandardError => error
    ["other", error.inspect]
  end

  def headers(command)
    headers = command.fetch("headers", {})
    headers = headers.merge("Idempotency-Key" => "1") if command["idempotent"]
    return headers unless command["key"] && @hash.to_s.include?(":")

    kind, name = @hash.split(":")
    headers.merge(kind == "cookie" ? { "Cookie" => "#{name}=#{command["key"]}" } : { name => command["key"] })
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

Runner.new.run
