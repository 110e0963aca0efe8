# frozen_string_literal: true

# A shop whose pages come from the service orders, through lbd:
#
#     LBD=unix:/run/lbd.sock puma -w 2 --preload shop.ru
require "lbd"

ORDERS = Lbd::Client.new

def answer(status, text, headers = {})
  [status, { "Content-Type" => "text/plain" }.merge(headers), [text]]
end

run(lambda do |env|
  order = ORDERS.request("GET", "http://orders.lbd#{env["PATH_INFO"]}", timeout: 2)
  answer(Integer(order.code), order.body)
rescue Lbd::Dropped, Lbd::CircuitBroken => error # all callers together send too much: do not add to it
  answer(503, "#{error.message}\n", "Retry-After" => "5")
rescue Timeout::Error => error
  answer(504, "orders: #{error.message}\n")
rescue Lbd::Error, SystemCallError, SocketError, IOError => error
  answer(502, "orders: #{error.message}\n")
end)
