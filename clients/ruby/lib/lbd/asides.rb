# frozen_string_literal: true

require_relative "deadline"

module Lbd
  # The addresses of one cluster to which tries have failed. Safe for threads.
  class Asides
    # Seconds for which an address is set aside.
    FIRST = 1.0
    MAX = 10.0

    # Tries in a row that were sent and got no answer, after which an address is set aside.
    UNKNOWN_ENDS = 3

    # Seconds after which an address is forgotten, in modes without a batch.
    FORGET_TIME = 300.0

    # What is remembered of an address: the ends in a row without an answer, the seconds for which it is set aside (0 if
    # it is not), when the next request is a trial, and whether one is under way.
    Aside = Struct.new(:unknown, :pause, :from, :trial) do
      def avoided?(now)
        pause.positive? && now < from
      end
    end
    private_constant :Aside

    def initialize
      @lock = Mutex.new
      @addresses = {}
    end

    # Whether requests avoid an address. When its time is over, one request is permitted: the trial.
    def avoid?(address)
      return false if @addresses.empty?

      @lock.synchronize do
        known = @addresses[address]
        next false if known.nil? || known.pause.zero?

        now = Clock.now
        next true if known.avoided?(now)

        known.trial = true
        known.from = now + MAX # the next one if this never ends
        false
      end
    end

    # The addresses that requests avoid. A trial begins when lbd has picked the address: see avoid?.
    def avoided
      return [] if @addresses.empty?

      now = Clock.now
      @lock.synchronize do
        @addresses.delete_if { |_, known| now > known.from + FORGET_TIME }
        @addresses.filter_map { |address, known| address if known.avoided?(now) }
      end
    end

    # A try was not sent, or got no answer. most is the number of addresses that may be set aside.
    def failed(address, sent, most)
      @lock.synchronize do
        now = Clock.now
        known = (@addresses[address] ||= Aside.new(0, 0.0, now, false))
        if sent && (known.unknown += 1) < UNKNOWN_ENDS
          known.pause, known.trial = 0.0, false if known.trial # it was connected
          next
        end
        if known.pause.zero? && @addresses.count { |_, each| each.pause.positive? } < most
          known.pause = FIRST
        elsif known.trial
          known.pause = [2 * known.pause, MAX].min
        else
          next # there are too many, or the request began before
        end
        known.trial = false
        known.from = now + (known.pause * rand(0.8..1.2))
      end
    end

    def answered(address)
      @lock.synchronize { @addresses.delete(address) } unless @addresses.empty?
    end

    # Forgets the other addresses.
    def keep(addresses)
      @lock.synchronize { @addresses.keep_if { |address, _| addresses.include?(address) } } unless @addresses.empty?
    end
  end

  # The seconds that the last successful connects of one cluster took. Safe for threads.
  class Connects
    SIZE = 16
    MIN = 0.25

    # Seconds that a connect has while there are other endpoints.
    attr_reader :limit

    def initialize
      @lock = Mutex.new
      @took = []
      @limit = MIN
    end

    def add(took)
      @lock.synchronize do
        @took.shift if @took.size == SIZE
        @limit = [MIN, 3 * @took.push(took).max].max
      end
    end
  end
end
