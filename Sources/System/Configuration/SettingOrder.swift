import ByteStreams

/// Two settings of which the first must not be above the second.
///
/// Where only the second is set and is below the first's default, the default gives way. Where the first is set, it is an error.
struct SettingOrder {
  let lower: String
  let upper: String
  /// Why, as a part of the error.
  let reason: String
  /// Whether the first setting has no effect above the second, which is worth a warning only.
  let isWarning: Bool
  private let isMet: (GatewaySettings) -> Bool
  private let lowerDefault: (inout GatewaySettings) -> Void

  private init<Value: Comparable>(
    _ lower: String, _ lowerValue: WritableKeyPath<GatewaySettings, Value>,
    _ upper: String, _ upperValue: WritableKeyPath<GatewaySettings, Value>, _ reason: String,
    isWarning: Bool = false, where applies: @escaping (GatewaySettings) -> Bool = { _ in true }
  ) {
    self.lower = lower
    self.upper = upper
    self.reason = reason
    self.isWarning = isWarning
    isMet = { !applies($0) || $0[keyPath: lowerValue] <= $0[keyPath: upperValue] }
    lowerDefault = { $0[keyPath: lowerValue] = $0[keyPath: upperValue] }
  }

  /// Applies the order to `settings`. `origins`: where those that were set were set. The error or warning, if there is one.
  func apply(to settings: inout GatewaySettings, origins: [String: String]) -> ConfigurationError? {
    guard !isMet(settings) else { return nil }
    guard let place = origins[lower] else {
      if !isWarning { lowerDefault(&settings) }
      return nil
    }
    let settings = settings
    let shown = { (path: String) in
      let value = Setting.all.first { $0.path == path }?.show(settings) ?? ""
      return "'\(path)' (\(value)\(origins[path] == nil ? ", the default" : ""))"
    }
    return ConfigurationError(place: place, message: "\(shown(lower)) is above \(shown(upper)): \(reason)")
  }

  /// Every such pair. Those that only limit different things (`http.connections` and `http.connections_per_address`) are none.
  static var all: [SettingOrder] {
    withinOpening + [
      SettingOrder(
        "http.request_line_bytes", \.http.requestLineBytes, "http.head_bytes", \.http.headBytes,
        "the request line is a part of the head"),
      SettingOrder(
        "http.body_bytes", \.http.bodyBytes, "http.pending_body_bytes", \.http.pendingBodyBytes,
        "no body of this size would ever be accepted"),
      SettingOrder(
        "upstream.reconnect.minimum", \.upstream.reconnect.minimum, "upstream.reconnect.maximum",
        \.upstream.reconnect.maximum, "lower the minimum or raise the maximum",
        where: { ["random", "full-jitter"].contains($0.upstream.reconnect.strategy) }),
      SettingOrder(
        "upstream.reconnect.base", \.upstream.reconnect.base, "upstream.reconnect.maximum",
        \.upstream.reconnect.maximum, "lower the base or raise the maximum",
        where: { !["random", "fixed"].contains($0.upstream.reconnect.strategy) }),
      SettingOrder(
        "upstream.queue.low_water", \.upstream.queue.lowWater, "upstream.queue.high_water",
        \.upstream.queue.highWater, "the queue is held at the high mark and flows again at the low one"),
      SettingOrder(
        "delivery.wait", \.delivery.wait, "delivery.maximum_wait", \.delivery.maximumWait,
        "no poll is held for longer than the maximum"),
      SettingOrder(
        "delivery.limit", \.delivery.limit, "delivery.maximum_limit", \.delivery.maximumLimit,
        "no response has more messages than the maximum"),
      SettingOrder(
        "delivery.answer_bytes", \.delivery.answerBytes, "delivery.maximum_answer_bytes",
        \.delivery.maximumAnswerBytes, "no response has more bytes than the maximum"),
    ]
  }

  /// The phases of a connection attempt: `upstream.timeouts.opening` limits them all together.
  private static var withinOpening: [SettingOrder] {
    let phases: [(String, WritableKeyPath<GatewaySettings, TimeSpan>)] = [
      ("resolve", \.upstream.timeouts.resolve), ("connect", \.upstream.timeouts.connect),
      ("proxy", \.upstream.timeouts.proxy), ("tls", \.upstream.timeouts.tls),
      ("upgrade", \.upstream.timeouts.upgrade),
    ]
    return phases.map { name, value in
      SettingOrder(
        "upstream.timeouts." + name, value, "upstream.timeouts.opening", \.upstream.timeouts.opening,
        "the connection attempt ends before", isWarning: true)
    }
  }
}
