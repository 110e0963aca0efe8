# frozen_string_literal: true

require_relative "deadline"
require_relative "errors"

module Lbd
  # The picks of one answer of lbd, shuffled. Requests take them in turn. Safe for threads.
  class Batch
    # Refusals of a kind in one answer, at most: lbd makes no more picks at once.
    MAX_SIZE = 1000

    # The address of a pick: HOST:PORT or [IPV6]:PORT.
    ADDRESS = %r{\A[^\s/]+:\d{1,5}\z}
    private_constant :ADDRESS

    # The generation of the cluster; nil if lbd refused all picks, because then it does not say.
    attr_reader :generation

    # The time when lbd answered.
    attr_reader :made

    attr_reader :addresses

    # The batch in the answer to a pick with n. Raises an ArgumentError if it is not one.
    def self.of_answer(cluster, answer)
      elements = answer["picks"].map { |pick| address(pick) }
      answer["dropped"]&.each { |category, count| elements.concat(refusals(dropped(cluster, category), count)) }
      elements.concat(refusals(circuit_broken(cluster), answer["circuit_broken"] || 0))
      raise ArgumentError, "a batch without picks" if elements.empty?

      new(Integer(answer["generation"]), elements)
    rescue NoMethodError, TypeError => error
      raise ArgumentError, error.message
    end

    # A batch of nothing but a refusal: lbd refused each pick.
    def self.of_refusal(error)
      new(nil, [error])
    end

    # The address of a pick. Raises an ArgumentError if it has none.
    def self.address(pick)
      address = pick["address"]
      raise ArgumentError, "a pick without an address" unless address.is_a?(String) && address.match?(ADDRESS)

      address
    end

    def self.refusals(error, count)
      raise ArgumentError, "#{count} refusals" unless Integer(count).between?(0, MAX_SIZE)

      [error] * count
    end

    def self.dropped(cluster, category)
      Errors::Dropped.new("cluster #{cluster}: drop category #{category} dropped the request")
                     .about(cluster: cluster, code: "dropped")
    end

    def self.circuit_broken(cluster)
      Errors::CircuitBroken.new("cluster #{cluster}: the circuit breaker is full")
                           .about(cluster: cluster, code: "circuit_broken")
    end
    private_class_method :refusals, :dropped, :circuit_broken

    # elements are addresses, and the errors of requests that are refused.
    def initialize(generation, elements)
      @generation = generation
      @elements = elements.shuffle
      @addresses = elements.grep(String).uniq
      @made = Clock.now
      @lock = Mutex.new
      @turn = -1
    end

    # The next element, without the addresses for which the block returns true: of the others, each keeps its share.
    def take
      @lock.synchronize do
        @elements.each do
          element = @elements[(@turn += 1) % @elements.size]
          return element unless element.is_a?(String) && block_given? && yield(element)
        end
        @elements[(@turn += 1) % @elements.size]
      end
    end

    # How many elements were taken.
    def taken
      @turn + 1
    end

    # An address for which the block returns true, drawn so that each keeps its share; nil if there is none.
    def draw(&block)
      all = @elements.grep(String)
      Array.new(8) { all.sample }.compact.find(&block) || all.rotate(rand(@elements.size)).find(&block)
    end
  end
end
