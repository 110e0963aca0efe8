# frozen_string_literal: true

require "uri"

module Lbd
  # What a program asks of lbd for one request, beside what the setting hosts says.
  #
  # hash_key  hash key, instead of the one that the request has
  # path      path that the routes of a target match, instead of that of the request
  # headers   headers that they match, instead of those of the request: a Hash
  # choice    what lbd has chosen for the last try of the request; nil if it had none
  Ask = Struct.new(:hash_key, :path, :headers, :choice, keyword_init: true)

  # What the requests to one host are for.
  class Host
    # Begins names that are targets.
    TARGET = "xds:///"

    # Bytes of a hash key. What comes after them does not count.
    KEY_MAX = 1024

    # The cluster, or the target with its prefix.
    attr_reader :name

    # That of a value of the setting hosts: a name, fields, or nothing. Raises an ArgumentError for fields that are not
    # valid.
    def self.of(host, value)
      return value && new(value) unless value.is_a?(Hash)

      new(host.delete_suffix(".lbd"), **value.transform_keys(&:to_sym))
    rescue ArgumentError => error
      raise ArgumentError, "hosts: #{host}: #{error.message}"
    end

    def initialize(default, cluster: nil, target: nil, headers: nil, hash: nil)
      raise ArgumentError, "set either cluster or target, not both" if cluster && target

      @name = target ? TARGET + target.delete_prefix(TARGET) : cluster || default
      @headers = headers
      return unless hash

      kind, @key = hash.to_s.match(/\A(header|cookie):(.+)\z/)&.captures
      raise ArgumentError, "hash: #{hash.inspect} is not header:NAME or cookie:NAME" unless kind

      @cookie = /(?:\A|;)\s*#{Regexp.escape(@key)}=("?)([^;]*?)\1\s*(?:;|\z)/n if kind == "cookie"
    end

    # What lbd has to know of a request beside its cluster, as part of a URL. The block returns the values of a header.
    def query(path, ask, &headers)
      target = @name.start_with?(TARGET)
      return "" unless ask || @key || target

      key = ask&.hash_key.to_s
      key = key_in(&headers) if key.empty? && @key
      asked = key.empty? ? [] : [["hash", key.byteslice(0, KEY_MAX)]]
      asked.push(["path", (ask&.path || path)[/\A[^?#]+/] || "/"], *matched(ask, &headers)) if target
      asked.empty? ? "" : "&#{URI.encode_www_form(asked)}"
    end

    private

    def key_in
      return yield(@key)&.first.to_s unless @cookie

      yield("Cookie").to_a.join("; ").b[@cookie, 2].to_s
    end

    # The headers that routes match, as pairs.
    def matched(ask)
      names = ask&.headers ? ask.headers.keys.sort : @headers.to_a
      names.flat_map do |name|
        values = ask&.headers ? Array(ask.headers[name]) : yield(name).to_a
        values.map { |value| ["header.#{name}", value] }
      end
    end
  end
end
