# frozen_string_literal: true

# A client of lbd: HTTP requests to hosts CLUSTER.lbd go to the endpoints that lbd picks.
#
#     LBD = Lbd::Client.new
#     LBD.request("GET", "http://orders.lbd/items/7").body
#
# Client#net_http is for code that has a Net::HTTP; lbd/faraday is for Faraday.
module Lbd
end

require_relative "lbd/version"
require_relative "lbd/errors"
require_relative "lbd/client"
