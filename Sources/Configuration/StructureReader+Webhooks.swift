import ByteStreams
import Consumers
import HTTPCodec
import Inbox
import Profiles
import Sessions
import Webhooks

/// Reads the webhooks of a session.
extension StructureReader {
  private enum Member: String, CaseIterable {
    case name, url, secrets, topics, concurrency, timeout, retries, addresses
    case order = "order_by"
    case giveUpAfter = "give_up_after"
    case caFile = "ca_file"

    var schema: ValueSchema {
      switch self {
      case .name, .url, .order, .caFile: .text
      case .secrets, .topics: .list(.text)
      case .concurrency: .integer(WebhookSettings.concurrencies)
      case .timeout: .duration(WebhookSettings.timeouts)
      case .giveUpAfter: .duration(WebhookSettings.giveUpTimes)
      case .retries: .list(.duration(WebhookSettings.retryTimes))
      case .addresses: .members([.init("allow", .list(.text))])
      }
    }
  }

  static var webhookSchema: ValueSchema {
    .list(
      .members(
        Member.allCases.map { .init($0.rawValue, $0.schema) },
        required: [Member.name, .url, .secrets].map(\.rawValue)))
  }

  private static var webhookExample: String {
    "{name: billing, url: \"https://billing.example.org/events\", secrets: [\"${file:/run/secrets/billing}\"]}"
  }

  func webhooks(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [WebhookSettings] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value, items.count <= WebhookSettings.maximumCount else {
      throw fail(
        node,
        "'\(key)' must be a list of at most \(WebhookSettings.maximumCount) webhooks, as in [\(Self.webhookExample)]")
    }
    var webhooks: [WebhookSettings] = []
    for (index, item) in items.enumerated() {
      let webhook = try webhook(item, "\(key)[\(index)]")
      guard !webhooks.contains(where: { $0.name == webhook.name }) else {
        throw fail(item, "'\(webhook.name)' is the name of two webhooks in '\(key)': use another name")
      }
      webhooks.append(webhook)
    }
    return webhooks
  }

  private func webhook(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> WebhookSettings {
    var values: [Member: YAMLNode] = [:]
    for (name, value) in try members(node, key, Member.allCases.map(\.rawValue)) {
      if let member = Member(rawValue: name) { values[member] = value }
    }
    guard let name = values[.name], let url = values[.url] else {
      throw fail(node, "'\(key)' needs 'name', 'url' and 'secrets', as in \(Self.webhookExample)")
    }
    var webhook = WebhookSettings(name: try consumerName(name, "\(key).name"), url: try httpURL(url, "\(key).url"))
    func read<Value>(
      _ member: Member, _ path: WritableKeyPath<WebhookSettings, Value>,
      _ read: (YAMLNode, String) throws(ConfigurationError) -> Value
    ) throws(ConfigurationError) {
      if let value = values[member] { webhook[keyPath: path] = try read(value, "\(key).\(member.rawValue)") }
    }
    try read(.secrets, \.secrets, secrets)
    try read(.topics, \.topics, topics)
    try read(.concurrency, \.concurrency) { node, key throws(ConfigurationError) in
      try number(node, key, in: WebhookSettings.concurrencies)
    }
    try read(.order, \.order, order)
    try read(.timeout, \.timeout) { node, key throws(ConfigurationError) in
      try duration(node, key, in: WebhookSettings.timeouts)
    }
    try read(.giveUpAfter, \.giveUpAfter) { node, key throws(ConfigurationError) in
      try duration(node, key, in: WebhookSettings.giveUpTimes)
    }
    try read(.retries, \.retries, retries)
    try read(.addresses, \.rules.allowed, allowedAddresses)
    try read(.caFile, \.caFile) { node, key throws(ConfigurationError) in
      paths.absolute(try scalar(node, key), at: place(node))
    }
    guard !webhook.secrets.isEmpty else {
      throw fail(node, "'\(key)' needs 'secrets': use one or more of \(WebhookSecret.expectation)")
    }
    if let order = values[.order], webhook.order != nil, webhook.concurrency == 1 {
      throw fail(
        order, "'\(key).order_by' has no effect with concurrency 1, which keeps all pushes in order: leave it out")
    }
    if let reason = webhook.rules.refusal(ofHost: webhook.url.host, isProxied: false) {
      throw fail(url, "the host of '\(key).url' is not accepted: \(reason)")
    }
    return webhook
  }

  // MARK: Members

  /// Returns a text with its references replaced. Errors do not contain the text.
  private func secretText(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> String {
    let references = SecretReferenceReader(environment: environment, readFile: readFile, paths: paths)
    return try references.resolve(try scalar(node, key), at: place(node), isSecret: true).value
  }

  private func consumerName(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> String {
    let name = try scalar(node, key)
    guard ConsumerName.isValid(Array(name.utf8).span) else {
      throw fail(node, "'\(name)' is not valid for '\(key)': use \(ConsumerName.expectation)")
    }
    return name
  }

  private func httpURL(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> HTTPURL {
    let text = try secretText(node, key)
    do throws(HTTPURLError) {
      return try HTTPURL(text)
    } catch {
      throw fail(
        node,
        "the value of '\(key)' is not valid (\(error)): use a URL such as https://billing.example.org/events"
      )
    }
  }

  private func secrets(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [WebhookSecret] {
    var secrets: [WebhookSecret] = []
    for item in try items(node, key, maximum: WebhookSettings.maximumSecrets) {
      guard let secret = WebhookSecret(try secretText(item, key)) else {
        throw fail(item, "this value is not valid for '\(key)': use \(WebhookSecret.expectation)")
      }
      secrets.append(secret)
    }
    return secrets
  }

  private func topics(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [String] {
    var settings = ConsumerSettings()
    for item in try items(node, key, maximum: TopicFilter.maximumPatterns) {
      let topic = try scalar(item, key)
      guard settings.add(topic: Array(topic.utf8)) else {
        throw fail(
          item,
          "'\(topic)' is not valid for '\(key)': use 1 to \(PushTopic.maximumBytes) bytes, with a final '*' for all topics that begin so"
        )
      }
    }
    return settings.topics
  }

  private func order(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> ConsumerOrder? {
    let text = try scalar(node, key)
    if text.isEmpty { return nil }
    guard let order = ConsumerOrder(text), order != .all else {
      throw fail(
        node,
        "'\(text)' is not valid for '\(key)': use topic or a JSON pointer such as /order/id; for the order of all pushes, use concurrency 1"
      )
    }
    return order
  }

  private func retries(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [TimeSpan] {
    var times: [TimeSpan] = []
    for item in try items(node, key, maximum: WebhookSettings.retryCounts.upperBound) {
      times.append(try duration(item, key, in: WebhookSettings.retryTimes))
    }
    return times
  }

  /// Reads the allowed addresses: `{allow: […]}`, as in a profile.
  private func allowedAddresses(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [AddressBlock] {
    var blocks: [AddressBlock] = []
    for (_, value) in try members(node, key, ["allow"]) {
      for item in try items(value, "\(key).allow", maximum: Self.addressLimit) {
        let text = try scalar(item, "\(key).allow")
        guard let block = AddressBlock(text) else {
          throw fail(item, "'\(text)' is not valid for '\(key).allow': \(AddressBlock.expectation)")
        }
        blocks.append(block)
      }
    }
    return blocks
  }

  /// Maximum number of blocks of addresses. Each address of a name is compared with all blocks.
  private static let addressLimit = 64

  private func number(
    _ node: YAMLNode, _ key: String, in range: ClosedRange<Int>
  ) throws(ConfigurationError) -> Int {
    let text = try scalar(node, key)
    guard let number = Array(text.utf8).span.decimalValue(), range.contains(number) else {
      throw fail(
        node, "'\(text)' is not valid for '\(key)': use a number from \(range.lowerBound) to \(range.upperBound)")
    }
    return number
  }

  private func duration(
    _ node: YAMLNode, _ key: String, in range: ClosedRange<TimeSpan>
  ) throws(ConfigurationError) -> TimeSpan {
    let text = try scalar(node, key)
    guard let span = TimeSpan(text), range.contains(span) else {
      throw fail(
        node,
        "'\(text)' is not valid for '\(key)': use a duration from \(range.lowerBound.text) to \(range.upperBound.text)")
    }
    return span
  }
}

extension ValueFormat where Value == [WebhookSettings] {
  static var webhooks: ValueFormat {
    .structure(
      "a list of webhooks, each with name, url and secrets", schema: StructureReader.webhookSchema,
      read: StructureReader.webhooks,
      format: StructureText.text(of:))
  }
}

extension StructureText {
  /// Formats webhooks without their secrets. The path of a URL is masked, since it is often secret.
  static func text(of webhooks: [WebhookSettings]) -> String {
    let items = webhooks.map { webhook in
      var members = [
        ("name", PrintableText.quoted(webhook.name)), ("url", PrintableText.quoted(webhook.url.origin + "/***")),
        ("secrets", list(webhook.secrets.map { _ in "***" })), ("topics", list(webhook.topics)),
        ("concurrency", "\(webhook.concurrency)"),
      ]
      if let order = webhook.order { members.append(("order_by", PrintableText.quoted(order.text))) }
      members += [
        ("timeout", webhook.timeout.text), ("retries", "[\(webhook.retries.map(\.text).joined(separator: ", "))]"),
        ("give_up_after", webhook.giveUpAfter.text),
        ("addresses", mapping([("allow", list(webhook.rules.allowed.map(\.description)))])),
        ("ca_file", PrintableText.quoted(webhook.caFile)),
      ]
      return mapping(members)
    }
    return "[\(items.joined(separator: ", "))]"
  }
}

extension SettingSection {
  static func webhooks(_ session: SettingScope<SessionConfiguration>) -> SettingSection {
    SettingSection(settings: [
      session(
        "webhooks", \.webhooks, .webhooks,
        "URLs to which the gateway delivers pushes: name, url, secrets and options each")
    ])
  }
}
