# frozen_string_literal: true

require_relative "choice"
require_relative "deadline"
require_relative "errors"

module Lbd
  # The picks of one answer of lbd, shuffled. Requests take them in turn. Safe for threads.
  class Batch
    # Refusals of a kind in one answer, at most: lbd makes no more picks at once.
    MAX_SIZE = 1000

    # The generation of the cluster; nil if lbd refused all picks, because then it does not say.
    attr_reader :generation

    # The time when lbd answered.
    attr_reader :made

    attr_reader :addresses

    # What the requests ask that this is for, and the time when it is old.
    attr_accessor :query, :due

    # The batch in the answer to a pick with n. chosen is the cluster of its picks, unless they say it. Raises an
    # ArgumentError if it is not one.
    def self.of_answer(cluster, answer, chosen = cluster)
      choices = Hash.new { |known, pick| known[pick] = Choice.of(pick, chosen) }
      elements = answer["picks"].map { |pick| choices[pick] }
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

    def self.refusals(error, count)
      raise ArgumentError, "#{count} refusals" unless Integer(count).between?(0, MAX_SIZE)

      [error] * count
    end

    def self.dropped(cluster, category)
      Errors::Dropped.new("lbd: cluster #{cluster}: drop category #{category} dropped the request")
                     .about(cluster: cluster, code: "dropped")
    end

    def self.circuit_broken(cluster)
      Errors::CircuitBroken.new("lbd: cluster #{cluster}: the circuit breaker is full")
                           .about(cluster: cluster, code: "circuit_broken")
    end
    private_class_method :refusals, :dropped, :circuit_broken

    # elements are choices, and the errors of requests that are refused.
    def initialize(generation, elements)
      @generation = generation
      @elements = elements.shuffle
      @choices = elements.grep(Choice)
      @addresses = @choices.map(&:address).uniq
      @query = ""
      @made = Clock.now
      @lock = Mutex.new
      @turn = -1
    end

    # The next element, without the addresses for which the block returns true: of the others, each keeps its share.
    def take
      @lock.synchronize do
        @elements.each do
          element = @elements[(@turn += 1) % @elements.size]
          return element unless element.is_a?(Choice) && block_given? && yield(element.address)
        end
        @elements[(@turn += 1) % @elements.size]
      end
    end

    # How many elements were taken.
    def taken
      @turn + 1
    end

    # The cluster of the first pick; nil without one.
    def cluster
      @choices.first&.cluster
    end

    # A choice for whose address the block returns true, drawn so that each keeps its share; nil if there is none.
    def draw
      wanted = ->(choice) { yield choice.address }
      Array.new(8) { @choices.sample }.compact.find(&wanted) || @choices.rotate(rand(@elements.size)).find(&wanted)
    end
  end
end
