/// Elements of several users, who take turns. However many elements one user adds, the next element of another waits
/// for at most one element of each user.
///
/// The elements of one user keep their order.
package struct TurnQueue<Element> {
  /// By user. A user is in `turns` exactly if it has an entry, which may be empty.
  private var elements: [TotalUser: [Element]] = [:]
  /// Users in the order of their turns.
  private var turns: [TotalUser] = []

  package init() {}

  package mutating func append(_ element: Element, by user: TotalUser) {
    if elements[user] == nil { turns.append(user) }
    elements[user, default: []].append(element)
  }

  /// Removes the next element.
  package mutating func next() -> Element? {
    while !turns.isEmpty {
      let user = turns.removeFirst()
      guard var rest = elements.removeValue(forKey: user), !rest.isEmpty else { continue }
      let element = rest.removeFirst()
      if !rest.isEmpty {
        elements[user] = rest
        turns.append(user)
      }
      return element
    }
    return nil
  }

  /// Removes the elements of a user for which `condition` is true.
  package mutating func removeAll(of user: TotalUser, where condition: (Element) -> Bool) {
    elements[user]?.removeAll(where: condition)
  }
}
