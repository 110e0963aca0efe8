# frozen_string_literal: true

require_relative "case"
require "open3"
require "timeout"

# What becomes of a client when its process forks or ends, with real processes.
class ProcessesTest < Case
  LIB = File.expand_path("../lib", __dir__)

  def setup
    super
    upstreams(nil)
  end

  # A Ruby program with a client and a url.
  def start(program, *options, lbd: daemon.lbd)
    code = "require 'lbd'; client = Lbd::Client.new; url = '#{@url}'\n#{program}"
    input, output, thread = Open3.popen2({ "LBD" => lbd }, RbConfig.ruby, "-w", "-I#{LIB}", *options, "-e", code)
    @closing.push(input, output, Ending.new(thread))
    [input, output, thread]
  end

  # Ends a program that still runs.
  Ending = Struct.new(:thread) do
    def close
      Process.kill(:KILL, thread.pid) if thread.alive?
      thread.join
    end
  end

  def run_program(program, *options)
    input, output, thread = start(program, *options)
    input.close
    status = Timeout.timeout(20) { thread.value }
    assert_predicate status, :success?, output.read
  end

  def reported(outcome = "success")
    daemon.reported(@cluster, outcome)
  end

  def test_reports_at_the_end_of_a_process
    run_program("3.times { client.request('GET', url) }")
    assert_equal 3, reported
  end

  def test_reports_at_the_end_with_a_signal
    _, output, thread = start("client.request('GET', url); puts 'sent'; $stdout.flush; sleep")
    assert_equal "sent\n", output.gets
    Process.kill(:TERM, thread.pid)
    assert_equal Signal.list["TERM"], thread.value.termsig
    assert_equal 1, reported
  end

  def test_reports_if_a_handler_of_a_signal_closes_the_client
    _, output, thread = start("trap('TERM') { client.close and exit }\n" \
                              "client.request('GET', url); puts 'sent'; $stdout.flush; sleep")
    assert_equal "sent\n", output.gets
    Process.kill(:TERM, thread.pid)
    assert_predicate thread.value, :success?
    assert_equal 1, reported
  end

  # Closed clients that the garbage collector has marked for removal, and not removed yet, are not there for a child.
  def test_forks_after_clients_were_collected
    run_program(<<~RUBY)
      60.times do
        200.times { Lbd::Client.new.close }
        GC.start(full_mark: true, immediate_sweep: false)
        Process.wait(fork { exit!(0) })
        exit!(1) unless $?.success?
      end
    RUBY
  end

  def test_reports_in_tests_that_run_at_exit
    run_program(<<~RUBY)
      require "minitest/autorun"
      client.request("GET", url)
      Class.new(Minitest::Test) { define_method(:test_it) { assert_equal "200", client.request("GET", url).code } }
    RUBY
    assert_equal 2, reported
  end

  def test_ends_leases_at_the_end_of_a_process
    input, output, thread = start(<<~RUBY)
      client.close
      client = Lbd::Client.new(mode: :lease)
      Thread.new do
        client.request("GET", url) do
          puts "open"
          $stdout.flush
          sleep
        end
      end
      gets
    RUBY
    assert_equal "open\n", output.gets
    assert_equal 1, daemon.in_flight(@cluster)
    input.close
    assert_predicate thread.value, :success?
    assert_equal 0, daemon.in_flight(@cluster)
  end

  def test_reports_in_children
    run_program(<<~RUBY)
      client.request("GET", url)
      3.times { fork { 5.times { client.request("GET", url) } } }
      Process.waitall.each { |_, status| exit!(1) unless status.success? }
      client.request("GET", url)
    RUBY
    assert_equal 17, reported
  end

  def test_each_child_is_a_reporter
    run_program(<<~RUBY)
      reporter = -> { client.instance_variable_get(:@reporter) }
      parent, read, write = reporter.call, *IO.pipe
      2.times { fork { write.puts("\#{Process.pid} \#{reporter.call}") } }
      Process.waitall
      names = Array.new(2) { read.gets.split }
      exit!(1) unless names.all? { |pid, name| name.include?("/\#{pid}/") }
      exit!(1) unless [parent, *names.map(&:last)].map { |name| name[-8..] }.uniq.size == 3
    RUBY
  end

  # As before Ruby 3.1, and for Process.daemon.
  def test_reports_in_children_without_a_hook
    File.write("#{daemon.directory}/old.rb", <<~RUBY)
      def Process.respond_to?(name, *) = name == :_fork ? false : super
    RUBY
    run_program(<<~RUBY, "-r#{daemon.directory}/old.rb")
      exit!(1) if Process.singleton_class.include?(Lbd::Processes::Hook)
      client.request("GET", url)
      fork { 5.times { client.request("GET", url) } }
      Process.waitall
      client.request("GET", url)
    RUBY
    assert_equal 7, reported
  end

  def test_reports_after_daemon
    run_program("client.request('GET', url); Process.daemon(true, true); client.request('GET', url)")
    # The parent ends with exit!: what it counted is lost with it.
    eventually("the child has reported") { reported == 1 }
  end

  def test_does_not_share_connections_with_children
    run_program(<<~RUBY)
      client.request("GET", url)
      sockets = -> { ObjectSpace.each_object(BasicSocket).count { |socket| !socket.closed? } }
      before = sockets.call
      exit!(1) if before.zero?
      fork { exit!(sockets.call < before) }
      exit!(Process.waitall[0][1].success?)
    RUBY
  end

  def test_forgets_the_requests_of_its_parent
    run_program(<<~RUBY)
      client.request("GET", url) do
        child = fork { client.request("GET", url) }
        Process.wait(child)
        exit!(1) unless $?.success?
      end
      require "stringio"
      body = StringIO.new("body")
      def body.read(*)
        @child ||= fork || throw(:child) # unwinds the request of its parent
        super
      end
      catch(:child) { client.request("PUT", url, body, { "Content-Type" => "text/plain" }) }
      client.request("GET", url)
      Process.waitall
    RUBY
    assert_equal 5, reported
    assert_equal 0, reported("cancelled")
  end

  def test_does_not_blame_an_endpoint_for_a_shortage
    run_program(<<~RUBY)
      client.request("GET", url) do
        files, most = Process.getrlimit(:NOFILE)
        Process.setrlimit(:NOFILE, 3, most)
        begin
          client.request("GET", url)
          exit!(1)
        rescue Errno::EMFILE
          Process.setrlimit(:NOFILE, files, most)
        end
      end
    RUBY
    assert_equal([1, 1, 0], %w[success cancelled error].map { |outcome| reported(outcome) })
  end

  def test_keeps_the_leases_of_its_parent
    input, output, = start(<<~RUBY)
      client.close
      client = Lbd::Client.new(mode: :lease)
      client.request("GET", url) do
        fork { client.request("GET", url) }
        fork or exit # unwinds the request of its parent
        exit!(1) unless Process.waitall.all? { |_, status| status.success? }
        puts "open"
        $stdout.flush
        gets
      end
    RUBY
    assert_equal "open\n", output.gets
    assert_equal 1, daemon.in_flight(@cluster)
    input.close
    eventually("the lease has ended") { daemon.in_flight(@cluster).zero? }
  end

  def test_forks_while_threads_send
    run_program(<<~RUBY)
      stop = false
      threads = Array.new(4) { Thread.new { client.request("GET", url) until stop } }
      20.times do
        pid = fork do
          client.request("GET", url, timeout: 10)
          exit!(0)
        end
        Process.wait(pid)
        exit!(1) unless $?.success?
      end
      stop = true
      threads.each(&:join)
    RUBY
  end

  def test_ends_while_lbd_hangs
    own = Daemon.new
    own.push(@cluster, [upstream.address])
    input, output, thread = start(<<~RUBY, lbd: own.lbd)
      Lbd::Api.send(:remove_const, :CALL_TIMEOUT)
      Lbd::Api::CALL_TIMEOUT = 60
      client = Lbd::Client.new(report_interval: 0.1)
      client.request("GET", url)
      puts "sent"
      $stdout.flush
      gets
      client.request("GET", url)
      client.request("GET", url) until Thread.list.any? do |thread|
        thread.name == "lbd reports" && thread.backtrace&.first&.include?("wait_readable")
      end
      puts "hanging"
      $stdout.flush
    RUBY
    assert_equal "sent\n", output.gets
    Process.kill(:STOP, own.pid)
    input.close
    assert_equal "hanging\n", output.gets
    assert thread.join(20), "it does not wait for the answer"
    assert_predicate thread.value, :success?
  ensure
    Process.kill(:CONT, own.pid)
    own.close
  end

  # A thread names itself, and may not have done so yet when the request ends.
  def test_restarts_background_work_that_was_killed
    run_program(<<~RUBY)
      client.request("GET", url)
      Thread.list.each { |thread| thread.kill unless thread == Thread.current }
      Thread.pass while Thread.list.size > 1
      client.request("GET", url)
      Thread.pass until Thread.list.filter_map(&:name).sort == ["lbd #{@cluster}", "lbd reports"]
    RUBY
    assert_equal 2, reported
  end
end
