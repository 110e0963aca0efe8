# frozen_string_literal: true

require_relative "deadline"

module Lbd
  # What becomes of the clients of a process when it forks or ends.
  module Processes
    # Seconds for the last reports and the ends of leases of all clients.
    EXIT_TIMEOUT = 1.0

    # Ruby calls it for each fork since 3.1, but not for Process.daemon.
    module Hook
      def _fork
        pid = super
        Processes.check if pid.zero?
        pid
      end
    end

    # The clients that are not closed, as keys. A WeakMap of Ruby 3.1 would also give objects that were collected.
    @clients = {}.compare_by_identity
    @lock = Mutex.new # Ruby unlocks it in a child
    @pid = Process.pid
    @armed = false

    class << self
      def add(client)
        @lock.synchronize { @clients[client] = true }
      end

      def remove(client)
        @lock.synchronize { @clients.delete(client) }
      end

      # Tells the clients if this is another process than that of the last call.
      def check
        return if @pid == Process.pid

        @lock.synchronize do
          next if @pid == Process.pid

          @clients.keys.each(&:after_fork) # rubocop:disable Style/HashEachMethods -- others may add clients meanwhile
          @pid = Process.pid
        end
      end

      # Makes the clients send what is left at the end of the process. Called when background work begins, not when the
      # file is loaded: test frameworks run all tests in an at_exit of their own.
      def flush_at_exit
        return if @armed

        @armed = true
        at_exit { flush }
      end

      private

      def flush
        check
        @armed = false
        deadline = Deadline.new(EXIT_TIMEOUT)
        @clients.keys.each { |client| client.flush(deadline.left) } # rubocop:disable Style/HashEachMethods
      end
    end
  end
end

Process.singleton_class.prepend(Lbd::Processes::Hook) if Process.respond_to?(:_fork)
