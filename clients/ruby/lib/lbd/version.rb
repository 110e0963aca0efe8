# frozen_string_literal: true

module Lbd
  VERSION = "0.1.0"
end
