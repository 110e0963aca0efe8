# frozen_string_literal: true

require_relative "deadline"
require_relative "failures"

module Lbd
  # Idle connections, the youngest first. Safe for threads.
  class Pool
    # Seconds after which an idle connection is closed.
    IDLE_TIME = 30.0

    # Idle connections that are kept to one address, and in all.
    IDLE_EACH = 32
    IDLE_ALL = 256

    def initialize
      @lock = Mutex.new
      @idle = {}
      @count = 0
      @swept = Clock.now
      @closed = false
    end

    # Yields an idle connection, or else the one that open returns, and keeps it. If an idle connection had ended before
    # a request, yields a new one, unless the request cannot be repeated.
    def use(key, open, repeatable: true)
      if (connection = take(key))
        begin
          result = yield connection
          put(key, connection)
          return result
        rescue *Failures::CLOSED
          raise if connection.answered? || (connection.sent? && !repeatable)
        end
      end
      connection = open.call
      result = yield connection
      put(key, connection)
      result
    end

    # Closes the idle connections; those that are put later are closed at once.
    def close
      @lock.synchronize do
        @closed = true
        drain
      end.each(&:close)
    end

    # Closes the idle connections in a child of fork: they are those of the parent, too.
    def after_fork
      idle = drain
      initialize
      idle.each(&:close)
    end

    private

    def take(key)
      while (connection = pop(key))
        return connection if Clock.now - connection.idle_since < IDLE_TIME && connection.usable?

        connection.close
      end
    end

    def put(key, connection)
      return if connection.closed?

      now = connection.idle_since = Clock.now
      @lock.synchronize { keep(key, connection, now) }.each(&:close)
    end

    def pop(key)
      @lock.synchronize do
        idle = @idle[key] or return
        connection = idle.pop
        @count -= 1
        @idle.delete(key) if idle.empty?
        connection
      end
    end

    # Returns the connections that are to be closed.
    def keep(key, connection, now)
      surplus = sweep(now)
      return surplus << connection if @closed || @count >= IDLE_ALL

      idle = (@idle[key] ||= [])
      idle << connection
      @count += 1
      if idle.size > IDLE_EACH
        surplus << idle.shift
        @count -= 1
      end
      surplus
    end

    def sweep(now)
      return [] if now - @swept < 1

      @swept = now
      old = @idle.values.flat_map { |idle| idle.shift(idle.count { |each| each.idle_since < now - IDLE_TIME }) }
      @idle.delete_if { |_, idle| idle.empty? }
      @count -= old.size
      old
    end

    def drain
      connections = @idle.values.flatten
      @idle.clear
      @count = 0
      connections
    end
  end
end
