# frozen_string_literal: true

module Lbd
  # Where an endpoint is.
  Locality = Struct.new(:region, :zone, :sub_zone)

  # What lbd has chosen for a try of a request. cluster is, of a target, the one that its routes chose; attempt is 1 for
  # the first try. A fallback has the address only.
  Choice = Struct.new(:cluster, :address, :hostname, :locality, :priority, :attempt) do
    # That of a pick of a cluster; nil if the pick says which. Raises an ArgumentError if something is missing.
    def self.of(pick, cluster)
      address = pick["address"]
      unless address.is_a?(String) && address.match?(%r{\A[^\s/]+:\d{1,5}\z}) # HOST:PORT or [IPV6]:PORT
        raise ArgumentError, "a pick without an address"
      end

      cluster ||= pick["cluster"] or raise ArgumentError, "a pick without a cluster"
      locality = Locality.new(*pick["locality"]&.values_at("region", "zone", "sub_zone"))
      new(cluster, address, pick["hostname"], locality, pick["priority"])
    end
  end
end
