# frozen_string_literal: true

require_relative "case"
require "timeout"

# A client that Puma loads before it forks its workers.
class PumaTest < Case
  LIB = File.expand_path("../lib", __dir__)

  def setup
    super
    upstreams(nil)
    @directory = Dir.mktmpdir("puma")
    File.write("#{@directory}/config.ru", <<~RUBY)
      require "lbd"
      CLIENT = Lbd::Client.new
      CLIENT.request("GET", "#{@url}")
      run lambda { |env|
        response = CLIENT.request("GET", "#{@url}")
        [Integer(response.code), {}, [Process.pid.to_s]]
      }
    RUBY
    File.write("#{@directory}/puma.rb", <<~RUBY)
      workers 2
      threads 1, 4
      preload_app!
      bind "unix://#{socket}"
      on_restart { CLIENT.close }
    RUBY
  end

  def teardown
    if @puma
      Process.kill(:KILL, @puma)
      Process.wait(@puma)
    end
    FileUtils.remove_entry(@directory)
    super
  end

  def test_workers_report
    start
    sent = serve_from_workers(2)
    Process.kill(:TERM, @puma)
    stop
    assert_equal sent + 1, daemon.reported(@cluster, "success")
  end

  def test_all_report_when_puma_is_restarted
    start
    sent = serve_from_workers(2)
    Process.kill(:USR2, @puma) # restarts the master with exec, and with it the workers
    sent += serve_from_workers(2)
    Process.kill(:TERM, @puma)
    stop
    assert_equal sent + 2, daemon.reported(@cluster, "success")
  end

  def test_runs_the_example
    other = upstream
    daemon.push("orders", [other.address])
    start("-w", "2", "--preload", "-b", "unix://#{socket}", File.expand_path("../examples/shop.ru", __dir__))
    eventually("the shop answers") { get == other.address }
    shed = { category: "shed", drop_percentage: { numerator: 100 } }
    daemon.push("orders", [other.address], { drop_overloads: [shed] })
    eventually("the shop says that orders are dropped") { get(503)&.include?("shed") }
    assert_equal "/items/7", other.requests.pop.path
  end

  private

  def socket
    "#{@directory}/puma.sock"
  end

  def start(*options)
    options = ["-C", "puma.rb"] if options.empty?
    @puma = spawn({ "LBD" => daemon.lbd, "RUBYOPT" => "-I#{LIB}" }, "puma", *options,
                  chdir: @directory, %i[out err] => "#{@directory}/puma.log")
    @seen = []
  end

  def stop
    Timeout.timeout(20) { Process.wait(@puma) }
    @puma = nil
  end

  # Sends requests until this many workers have answered that had not before; returns how many have been answered.
  def serve_from_workers(number)
    answered = 0
    workers = []
    eventually("the workers have answered: #{File.read("#{@directory}/puma.log")}") do
      pids = Array.new(4) { Thread.new { get } }.filter_map(&:value)
      answered += pids.size
      workers |= pids - @seen
      workers.size == number
    end
    @seen |= workers
    answered
  end

  # The body of an answer with this status, or nil while there is none. That of config.ru is the process of the worker.
  def get(status = 200)
    UNIXSocket.open(socket) do |connection|
      connection.write("GET /items/7 HTTP/1.0\r\n\r\n")
      head, body = connection.read.split("\r\n\r\n", 2)
      body if head&.include?(" #{status} ")
    end
  rescue SystemCallError
    nil
  end
end
